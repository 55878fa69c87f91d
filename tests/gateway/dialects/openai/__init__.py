"""Tests of `apps/gateway/dialects/openai`."""
