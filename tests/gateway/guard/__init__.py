"""Tests of `apps/gateway/guard`."""
