"""Metrics buffer: add counts of requests up in plain numbers, and flush them to Prometheus once a second.

A metric's own count takes a lock and, with several workers, a file's page; a request adds to nine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from apps.gateway.metrics.definitions import COST, DURATION, FIRST_TOKEN, REQUESTS, TOKENS, UNPRICED
from apps.logs.entry import Entry

_added: defaultdict[Counter | Gauge, float] = defaultdict(float)
# By histogram: how many were seen in each of its buckets, and their sum.
_seen: dict[Histogram, tuple[Counts[int], list[float]]] = {}


@cache
def labeled_child(metric: Any, *labels: str) -> Any:
    """Return a metric's child, which the library looks up under a lock."""
    return metric.labels(*labels)


def add(metric: Counter | Gauge, amount: float = 1) -> None:
    """Add to a metric that has no labels, or to a child; it shows within a second."""
    _added[metric] += amount


def observe(histogram: Histogram, value: float) -> None:
    """Let a histogram, or a child of one, see a value; it shows within a second."""
    seen = _seen.get(histogram)
    if seen is None:
        seen = _seen[histogram] = (Counts(), [0.0])
    buckets, total = seen
    # The library has no way to let one see many values at once; of its own parts these two are all there is.
    buckets[bisect_left(histogram._upper_bounds, value)] += 1
    total[0] += value


def flush_to_prometheus() -> None:
    """Add the buffered counts and observations to the metrics."""
    while _seen:
        histogram, (buckets, total) = _seen.popitem()
        for at, number in buckets.items():
            histogram._buckets[at].inc(number)
        histogram._sum.inc(total[0])
    while _added:
        metric, amount = _added.popitem()
        metric.inc(amount)


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
