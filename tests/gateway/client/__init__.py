"""Tests of `apps/gateway/client`."""
