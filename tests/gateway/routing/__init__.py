"""Tests of `apps/gateway/routing`."""
