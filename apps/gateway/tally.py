"""Counts on their way to the metrics: added up in plain numbers, handed over together once a second.

A metric's own count takes a lock and, with several workers, a file's page; a request adds to nine. Knows numbers. Must
never know what they count.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge

_added: defaultdict[Counter | Gauge, float] = defaultdict(float)


@cache
def child_of(metric: Any, *labels: str) -> Any:
    """Return a metric's child, which the library looks up under a lock."""
    return metric.labels(*labels)


def add(metric: Counter | Gauge, amount: float = 1) -> None:
    """Add to a metric that has no labels, or to a child; it shows within a second."""
    _added[metric] += amount


def hand_over() -> None:
    """Let the metrics have what was added."""
    while _added:
        metric, amount = _added.popitem()
        metric.inc(amount)
