"""Guardrails: content filters for requests and answers, their configuration, and the violations they record."""
