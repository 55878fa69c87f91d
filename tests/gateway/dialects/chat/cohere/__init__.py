"""Tests of `apps/gateway/dialects/chat/cohere`."""
