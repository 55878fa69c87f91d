"""GenAI metrics: durations and tokens of requests in the names of OpenTelemetry's conventions, where they are exported.

While it is off, nothing is counted.
"""

from __future__ import annotations

from functools import cache

from prometheus_client import Histogram

from apps.gateway.metrics import labeled_child, observe, provider_label, tell
from apps.logs.entry import Entry
from apps.logs.genai_names import operation_of_route, provider_name

# By Prometheus' label, which has no dots.
ATTRIBUTES = {
    "gen_ai_operation_name": "gen_ai.operation.name",
    "gen_ai_provider_name": "gen_ai.provider.name",
    "gen_ai_request_model": "gen_ai.request.model",
    "gen_ai_token_type": "gen_ai.token.type",
    "error_type": "error.type",
}
_COMMON = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"]
# The conventions' own boundaries.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))


@cache
def _histograms() -> tuple[Histogram, Histogram]:
    """Return the two histograms; made when they are wanted, or they would be in everybody's `/metrics`."""
    duration = Histogram(
        "gen_ai_client_operation_duration_seconds",
        "Duration of a request",
        [*_COMMON, "error_type"],
        buckets=_SECONDS,
    )
    tokens = Histogram(
        "gen_ai_client_token_usage", "Tokens of a request", [*_COMMON, "gen_ai_token_type"], buckets=_TOKENS
    )
    return duration, tokens


@cache
def begin() -> None:
    """Count every finished request of this process from now on."""
    tell(count)


def count(entry: Entry) -> None:
    """Count a finished request."""
    duration, tokens = _histograms()
    own = provider_label(entry.used_provider) == "custom"
    common = (
        operation_of_route(entry.route),
        provider_name(entry.used_provider),
        "custom" if own else entry.underlying_model,
    )
    error = str(entry.status_code) if entry.has_error else ""
    observe(labeled_child(duration, *common, error), entry.duration / 1000)
    for kind, number in (("input", entry.prompt_tokens), ("output", entry.completion_tokens)):
        if number:
            observe(labeled_child(tokens, *common, kind), number)
