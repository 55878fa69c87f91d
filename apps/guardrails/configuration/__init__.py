"""Configuration: an organization's guardrails from rows to compiled rules."""
