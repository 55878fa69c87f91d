"""Finished requests as metrics. Knows a record and the metrics' names; decides nothing."""

from __future__ import annotations

from apps.gateway.metrics import COST, DURATION, FIRST_TOKEN, REQUESTS, TOKENS
from apps.logs.entry import Entry


def measure(entry: Entry) -> None:
    """Count a finished request."""
    REQUESTS.labels(entry.route, entry.used_model, entry.used_provider, str(entry.status_code)).inc()
    DURATION.labels(entry.route).observe(entry.duration / 1000)
    if entry.time_to_first_token is not None:
        FIRST_TOKEN.labels(entry.used_provider).observe(entry.time_to_first_token / 1000)
    for kind, count in (
        ("prompt", entry.prompt_tokens),
        ("completion", entry.completion_tokens),
        ("cached", entry.cached_tokens),
        ("reasoning", entry.reasoning_tokens),
    ):
        if count:
            TOKENS.labels(kind).inc(count)
    if entry.cost:
        COST.inc(float(entry.cost))
