"""Tests of `apps/gateway/dialects/vertex`."""
