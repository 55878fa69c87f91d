"""Tests of `apps/gateway/dialects/moderations`."""
