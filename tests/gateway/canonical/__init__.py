"""Tests of `apps/gateway/canonical`."""
