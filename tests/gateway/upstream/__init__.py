"""Tests of `apps/gateway/upstream`."""
