"""Rare branches of the product that a run of chaos should reach, and how often it did, by the product's own counters.

A run that never reaches one says nothing about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

# By their name in the report.
COUNTERS: Final = {
    "retransmission": "gateway_records_retransmitted_total",
    "spool": "gateway_records_spooled_total",
    "lease take-over": "gateway_swept_requests_total",
    "offline allowance": "gateway_unreserved_requests_total",
    "stale policy": "gateway_stale_policies_total",
    "record in memory": "gateway_unrecordable_requests_total",
}
EPOCH: Final = "ledger epoch"


class Branches:
    """Counts of one run, over all of its products."""

    def __init__(self) -> None:
        self._reached: Counter[str] = Counter()
        # The counters of the present product when they were last read.
        self._before: Mapping[str, float] = {}

    def begin(self) -> None:
        """Another product begins to count at 0."""
        self._before = {}

    def add(self, metrics: Mapping[str, float], epochs: int) -> None:
        """Add what the product counted since the last time; counters that have started again count from 0.

        `epochs` are those that began in its database so far.
        """
        now = {name: metrics.get(counter, 0.0) for name, counter in COUNTERS.items()} | {EPOCH: float(epochs)}
        for name, value in now.items():
            before = self._before.get(name, 0.0)
            self._reached[name] += round(value - before if value >= before else value)
        self._before = now

    def report(self) -> str:
        """Return how often each branch was reached, and those that never were."""
        reached = {name: self._reached[name] for name in (*COUNTERS, EPOCH)}
        never = [name for name, count in reached.items() if not count]
        counts = ", ".join(f"{name} {count}" for name, count in reached.items())
        return f"rare branches: {counts}" + (f"\nnever reached: {', '.join(never)}" if never else "")
