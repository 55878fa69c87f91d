"""Tests of `apps/gateway/tracing`."""
