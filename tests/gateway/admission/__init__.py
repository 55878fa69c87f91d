"""Tests of `apps/gateway/admission`."""
