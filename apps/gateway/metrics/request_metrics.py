"""Finished requests as metrics. Knows a record and the metrics' names; decides nothing."""

from __future__ import annotations

from apps.gateway.metrics.buffer import add, child_of, observe
from apps.gateway.metrics.definitions import COST, DURATION, FIRST_TOKEN, REQUESTS, TOKENS, UNPRICED
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
    if entry.prompt_tokens:
        add(child_of(TOKENS, "prompt"), entry.prompt_tokens)
    if entry.completion_tokens:
        add(child_of(TOKENS, "completion"), entry.completion_tokens)
    if entry.cached_tokens:
        add(child_of(TOKENS, "cached"), entry.cached_tokens)
    if entry.reasoning_tokens:
        add(child_of(TOKENS, "reasoning"), entry.reasoning_tokens)
    if entry.unpriced:
        add(child_of(UNPRICED, provider, model))
    if entry.cost:
        add(COST, float(entry.cost))
