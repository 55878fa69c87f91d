"""Tests of `apps/gateway/dialects/media`."""
