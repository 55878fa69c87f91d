"""Tests of `apps/gateway/dialects/anthropic`."""
