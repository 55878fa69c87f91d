"""Configuration: an organization's guardrails, validated, loaded and compiled."""
