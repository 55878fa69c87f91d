"""Guardrails: their findings, their actions, and their administration."""
