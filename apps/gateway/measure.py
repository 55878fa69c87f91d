"""Finished requests as metrics. Knows a record and the metrics' names; decides nothing."""

from __future__ import annotations

from apps.gateway.metrics import COST, DURATION, FIRST_TOKEN, REQUESTS, TOKENS, UNPRICED
from apps.gateway.tally import add, child_of, observe
from apps.logs.entry import Entry


def shown_name(provider_id: str) -> str:
    """Return a provider's name in metrics. Tenants name theirs as they like: each would be a time series for ever."""
    return "custom" if provider_id.startswith("custom:") else provider_id


def measure(entry: Entry) -> None:
    """Count a finished request."""
    model, provider = entry.used_model, entry.used_provider
    if shown_name(provider) != provider:
        model = provider = shown_name(provider)
    add(child_of(REQUESTS, entry.route, model, provider, str(entry.status_code)))
    observe(child_of(DURATION, entry.route), entry.duration / 1000)
    if entry.time_to_first_token is not None:
        observe(child_of(FIRST_TOKEN, provider), entry.time_to_first_token / 1000)
    for kind, count in (
        ("prompt", entry.prompt_tokens),
        ("completion", entry.completion_tokens),
        ("cached", entry.cached_tokens),
        ("reasoning", entry.reasoning_tokens),
    ):
        if count:
            add(child_of(TOKENS, kind), count)
    if entry.unpriced:
        add(child_of(UNPRICED, provider, model))
    if entry.cost:
        add(COST, float(entry.cost))
