"""Series at zero: label values of metrics before their first event, and after their subject has gone.

A series that appears with its first event has no value before it, so `rate()` and `increase()` miss that event, and an
alert on it never sees the first failure. A gauge whose subject has gone keeps its last value, and with it an alert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from prometheus_client import Counter, Gauge, Histogram


def begin_at_zero(metric: Counter | Histogram, *values: Iterable[str]) -> None:
    """Make the series of every combination of label values; `values` are those of each label, in its order."""
    for labels in product(*values):
        metric.labels(*labels)


class ComingAndGoing:
    """Gauges with one label whose values come and go. A gone value's series is set to 0: no process can remove it from
    the files of all."""

    def __init__(self, *gauges: Gauge) -> None:
        self._gauges = gauges
        # Label values that this process has shown.
        self._shown: set[str] = set()

    def show(self, values: Mapping[str, Sequence[float]]) -> None:
        """Set the gauges, in their order, for each label value; those that are not given any more are set to 0."""
        for label in self._shown - values.keys():
            self._set(label, [0.0] * len(self._gauges))
        for label, numbers in values.items():
            self._set(label, numbers)
        self._shown = set(values)

    def _set(self, label: str, numbers: Sequence[float]) -> None:
        for gauge, number in zip(self._gauges, numbers, strict=True):
            gauge.labels(label).set(number)
