"""Tests of `apps/gateway/endpoints`."""
