"""Tests of `apps/gateway/dialects/images`."""
