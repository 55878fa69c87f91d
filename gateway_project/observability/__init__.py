"""Observability: logs, metrics, health, and the doctor."""
