"""Tests of `apps/gateway/dialects/speech`."""
