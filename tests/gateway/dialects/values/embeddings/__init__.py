"""Tests of `apps/gateway/dialects/values/embeddings`."""
