"""Tests of `apps/guardrails/rules`."""
