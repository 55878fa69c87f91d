"""Tests of `apps/guardrails/scanning`."""
