"""Tests of `apps/gateway/dialects/completions`."""
