"""Metrics buffer: add counts up in plain numbers, and flush them to Prometheus once a second.

A metric's own count takes a lock and, with several workers, a file's page; a request adds to nine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

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
