"""Where traces and metrics go, if anywhere: OpenTelemetry's own variables (OTEL_*), as far as they are understood here.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT names a collector. Knows the variables. Must never show a header: it may hold a
credential.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from gateway_project.configuration import env


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Without an `endpoint` nothing is recorded or sent."""

    # Without a slash at its end; `/v1/traces` and `/v1/metrics` come behind it.
    endpoint: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    service_name: str = "model-gateway"
    resource_attributes: dict[str, str] = field(default_factory=dict)
    traces: bool = False
    metrics: bool = False
    # Share of the requests without a `traceparent` of their own that are traced.
    sample: float = 1.0
    # Whether spans hold what was said, of organizations that retain content.
    content: bool = False
    # Seconds from one export of metrics to the next.
    metrics_every: float = 60.0

    @classmethod
    def of_environment(cls) -> TelemetrySettings:
        """Return what the variables say. Raises ImproperlyConfigured naming the one that cannot be."""
        endpoint = str(env.env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default="")).rstrip("/")
        if endpoint:
            # There is one of each; another is refused by name.
            env.choice("OTEL_EXPORTER_OTLP_PROTOCOL", ("http/protobuf",), "http/protobuf")
            env.choice("OTEL_TRACES_SAMPLER", ("parentbased_traceidratio",), "parentbased_traceidratio")
        settings = cls(
            endpoint=endpoint,
            headers=_pairs("OTEL_EXPORTER_OTLP_HEADERS"),
            service_name=str(env.env.str("OTEL_SERVICE_NAME", default="model-gateway")),
            resource_attributes=_pairs("OTEL_RESOURCE_ATTRIBUTES"),
            traces=bool(endpoint) and env.choice("OTEL_TRACES_EXPORTER", ("otlp", "none"), "otlp") == "otlp",
            metrics=bool(endpoint) and env.choice("OTEL_METRICS_EXPORTER", ("otlp", "none"), "otlp") == "otlp",
            sample=env.share("OTEL_TRACES_SAMPLER_ARG", 1.0),
            content=env.boolean("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", default=False),
            metrics_every=env.integer("OTEL_METRIC_EXPORT_INTERVAL", 60_000, 1_000, 3_600_000) / 1000,
        )
        if not endpoint:
            return cls()
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return env.refuse("OTEL_EXPORTER_OTLP_ENDPOINT must be the http:// or https:// URL of a collector", cls())
        return settings


def _pairs(name: str) -> dict[str, str]:
    """Return `key=value,key=value`, values percent-encoded. Raises ImproperlyConfigured, without a value."""
    found: dict[str, str] = {}
    for pair in env.words(name):
        key, equals, value = pair.partition("=")
        text = unquote(value.strip())
        if not equals or not key.strip() or not text.isprintable():
            return env.refuse(f"{name} must be key=value pairs, separated by commas", {})
        found[key.strip()] = text
    return found
