"""Tests of `apps/gateway/framing`."""
