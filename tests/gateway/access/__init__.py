"""Tests of `apps/gateway/access`."""
