"""Tests of `apps/guardrails/regex`."""
