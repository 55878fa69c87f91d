"""Tests of `apps/gateway/dialects/google`."""
