"""Request metrics: count a finished request."""

from __future__ import annotations

from collections.abc import Callable

from apps.gateway.metrics.buffer import add, labeled_child, observe
from apps.gateway.metrics.definitions import COST, DURATION, FIRST_TOKEN, REQUESTS, TOKENS, UNPRICED
from apps.logs.entry import Entry

# Prefixes of names that tenants give.
_TENANTS_OWN = frozenset({"custom", "mcp"})
_listeners: list[Callable[[Entry], None]] = []


def tell(listener: Callable[[Entry], None]) -> None:
    """Have a listener told of every finished request of this process."""
    _listeners.append(listener)


def provider_label(provider_id: str) -> str:
    """Return a provider's name in metrics. Tenants name theirs, and their servers of tools, as they like: each would be
    a time series for ever."""
    kind, colon, _ = provider_id.partition(":")
    return kind if colon and kind in _TENANTS_OWN else provider_id


def record_request_metrics(entry: Entry) -> None:
    """Count a finished request."""
    for listener in _listeners:
        listener(entry)
    model, provider = entry.used_model, entry.used_provider
    if provider_label(provider) != provider:
        model = provider = provider_label(provider)
    add(labeled_child(REQUESTS, entry.route, model, provider, str(entry.status_code)))
    observe(labeled_child(DURATION, entry.route), entry.duration / 1000)
    if entry.time_to_first_token is not None:
        observe(labeled_child(FIRST_TOKEN, provider), entry.time_to_first_token / 1000)
    if entry.prompt_tokens:
        add(labeled_child(TOKENS, "prompt"), entry.prompt_tokens)
    if entry.completion_tokens:
        add(labeled_child(TOKENS, "completion"), entry.completion_tokens)
    if entry.cached_tokens:
        add(labeled_child(TOKENS, "cached"), entry.cached_tokens)
    if entry.reasoning_tokens:
        add(labeled_child(TOKENS, "reasoning"), entry.reasoning_tokens)
    if entry.unpriced:
        add(labeled_child(UNPRICED, provider, model))
    if entry.cost:
        add(COST, float(entry.cost))
