"""Tests of `apps/gateway/dialects/bedrock`."""
