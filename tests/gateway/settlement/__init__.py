"""Tests of `apps/gateway/settlement`."""
