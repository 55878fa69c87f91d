"""Tests of `apps/gateway/dialects/chat/google`."""
