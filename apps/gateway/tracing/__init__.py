"""Tracing: a request's spans by OpenTelemetry's conventions, and their export over OTLP (docs/observability.md)."""
