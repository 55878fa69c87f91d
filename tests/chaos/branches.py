"""Rare branches of the product that a run of chaos must reach, and how often it did, by the product's own counters.

A run that never reaches one says nothing about it, so a whole run fails then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple


class Branch(NamedTuple):
    """A branch: what happens in it, the counter that it increases (empty: told by the books), and faults that lead
    to it."""

    about: str
    counter: str
    faults: tuple[str, ...]


_SILENT: Final = ("valkey-killed", "valkey-hung", "valkey-no-replicas", "valkey-read-only")
EPOCH: Final = "ledger epoch"
BRANCHES: Final = {
    "retransmission": Branch(
        "a record is pushed again, because the store may have lost it",
        "gateway_records_retransmitted_total",
        ("valkey-evicting", "valkey-killed"),
    ),
    "spool": Branch("a record goes to the disk", "gateway_records_spooled_total", _SILENT),
    "spool replay": Branch("it comes back from there", "gateway_records_replayed_total", _SILENT),
    "lease take-over": Branch(
        "what a dead worker held is swept", "gateway_swept_requests_total", ("web-worker-killed", "web-server-killed")
    ),
    "offline allowance": Branch(
        "a request is let in without an answer of the store", "gateway_unreserved_requests_total", _SILENT
    ),
    "stale policy": Branch(
        "a request is served by an expired policy",
        "gateway_stale_policies_total",
        ("postgres-hung-for-long",),
    ),
    "record in memory": Branch(
        "neither store nor disk takes a record", "gateway_unrecordable_requests_total", ("disk-full-without-room",)
    ),
    "dead letter": Branch(
        "a record that cannot be read is put aside", "gateway_dead_letters_total", ("record-unreadable",)
    ),
    EPOCH: Branch("the database is older than it was", "", ("postgres-restored",)),
}
HEADER: Final = "| rare branch | reached | what happens in it |\n|---|---:|---|"


class Branches:
    """Counts of one run, over all of its products."""

    def __init__(self) -> None:
        self._reached: Counter[str] = Counter()
        # The counters of the present product when they were last read.
        self._before: Mapping[str, float] = {}

    def begin(self, epochs: int) -> None:
        """Another product begins to count at 0; so many epochs began while it was set up."""
        self._before = {EPOCH: float(epochs)}

    def add(self, metrics: Mapping[str, float], epochs: int) -> None:
        """Add what the product counted since the last time; counters that have started again count from 0.

        `epochs` are those that began in its database so far.
        """
        now = {name: metrics.get(one.counter, 0.0) for name, one in BRANCHES.items() if one.counter}
        now[EPOCH] = float(epochs)
        for name, value in now.items():
            before = self._before.get(name, 0.0)
            self._reached[name] += round(value - before if value >= before else value)
        self._before = now

    def missed(self, struck: Collection[str]) -> list[str]:
        """Return the branches that were never reached, although a fault that leads to them has struck."""
        return [
            name for name, one in BRANCHES.items() if not self._reached[name] and not set(one.faults).isdisjoint(struck)
        ]

    def report(self) -> str:
        """Return the table of how often each branch was reached."""
        rows = [f"| {name} | {self._reached[name]} | {one.about} |" for name, one in BRANCHES.items()]
        return "\n".join([HEADER, *rows])
