"""Tests of `apps/gateway/dialects/cohere`."""
