"""Tests of `apps/gateway/dialects/chat/completions`."""
