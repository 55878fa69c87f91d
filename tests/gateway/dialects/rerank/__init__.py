"""Tests of `apps/gateway/dialects/rerank`."""
