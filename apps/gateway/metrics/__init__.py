"""Metrics: what the gateway counts about itself for Prometheus."""
