"""Tests of `apps/gateway/tasks`."""
