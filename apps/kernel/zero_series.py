"""Series at zero: the label values of a metric that are known beforehand, shown from the first scrape on.

A series that appears with its first event has no value before it, so `rate()` and `increase()` miss that event, and an
alert on it never sees the first failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from prometheus_client import Counter, Histogram


def begin_at_zero(metric: Counter | Histogram, *values: Iterable[str]) -> None:
    """Make the series of every combination of label values; `values` are those of each label, in its order."""
    for labels in product(*values):
        metric.labels(*labels)
