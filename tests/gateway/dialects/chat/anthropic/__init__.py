"""Tests of `apps/gateway/dialects/chat/anthropic`."""
