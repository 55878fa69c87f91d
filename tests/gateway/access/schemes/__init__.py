"""Tests of `apps/gateway/access/schemes`."""
