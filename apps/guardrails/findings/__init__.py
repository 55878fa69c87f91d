"""Findings: what guardrails look at, what they say, and how it is masked."""
