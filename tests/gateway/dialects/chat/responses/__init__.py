"""Tests of `apps/gateway/dialects/chat/responses`."""
