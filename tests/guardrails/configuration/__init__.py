"""Tests of `apps/guardrails/custom`."""
