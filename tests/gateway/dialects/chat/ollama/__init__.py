"""Tests of `apps/gateway/dialects/chat/ollama`."""
