"""Tests of `apps/gateway/metrics`."""
