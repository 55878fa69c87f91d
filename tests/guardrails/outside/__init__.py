"""Tests of `apps/guardrails/findings`."""
