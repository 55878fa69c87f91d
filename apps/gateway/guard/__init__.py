"""Guardrails on requests and responses as they pass through the gateway."""
