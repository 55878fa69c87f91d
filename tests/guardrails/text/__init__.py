"""Tests of `apps/guardrails/text`."""
