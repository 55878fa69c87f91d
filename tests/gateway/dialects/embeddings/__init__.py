"""Tests of `apps/gateway/dialects/embeddings`."""
