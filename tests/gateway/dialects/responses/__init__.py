"""Tests of `apps/gateway/dialects/responses`."""
