"""Tests of `apps/gateway/dialects`."""
