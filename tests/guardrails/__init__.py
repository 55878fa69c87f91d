"""Guardrails: what they find, what they do, and what is done to them."""
