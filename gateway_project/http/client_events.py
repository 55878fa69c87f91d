"""Events of a worker that no view sees, as metrics and log lines: refused requests, aborted bodies, turns of its loop.

Import it in a worker only, after gevent's patches. The time in which the loop waits for something to happen is no part
of a turn.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable

import gevent
import structlog
from prometheus_client import Counter, Histogram

from apps.kernel.zero_series import begin_at_zero

log = structlog.get_logger("gateway_project.http")

REFUSED = Counter("gateway_refused_requests_total", "Requests refused before any view saw them", ["reason"])
CLOSED = Counter("gateway_closed_connections_total", "Connections closed by the gateway's own choice", ["reason"])
begin_at_zero(REFUSED, ("malformed", "no_credential", "overloaded", "throttled", "too_large", "too_slow"))
begin_at_zero(CLOSED, ("address_limit", "no_room"))
LOOP_TURNS = Histogram(
    "gateway_event_loop_longest_turn_seconds",
    "The event loop's longest turn, looked at ten times a second in each worker",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
ABORTED = Counter("gateway_aborted_bodies_total", "Requests whose client left before its body was complete")

# Seconds between two lines about one kind of event: a flood is a number, not a flood of lines.
_BETWEEN_LINES = 1.0
# Events not yet counted and logged; updating a metric costs as much as the rest of rejecting a request.
_new: Counts[tuple[str, str]] = Counts()
_untold: Counts[tuple[str, str]] = Counts()
_told_at: dict[tuple[str, str], float] = {}
_METRICS = {"client.refused": REFUSED, "client.connection_closed": CLOSED}
_ABORTED = ("client.body_aborted", "client_left")


def refused(reason: str) -> None:
    """Count a refused request."""
    _new["client.refused", reason] += 1


def closed(reason: str) -> None:
    """Count a connection that had to go."""
    _new["client.connection_closed", reason] += 1


def aborted() -> None:
    """Count a client that left in the middle of its request."""
    _new[_ABORTED] += 1


def hand_over() -> None:
    """Write the counts to metrics and log; at most one line a second for each kind of event."""
    for (event, reason), number in _new.items():
        metric = _METRICS.get(event)
        (ABORTED if metric is None else metric.labels(reason)).inc(number)
        _untold[event, reason] += number
    _new.clear()
    now = time.monotonic()
    for kind in [kind for kind in _untold if now - _told_at.get(kind, -_BETWEEN_LINES) >= _BETWEEN_LINES]:
        _told_at[kind] = now
        event, reason = kind
        log.info(event, reason=reason, count=_untold.pop(kind))


# libev's priorities go from -2 to 2: before and behind all else that a turn does.
_FIRST, _LAST = 2, -2


class TurnTimes:
    """The turns of the loop of the hub that it is made in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._longest = 0.0
        loop = gevent.get_hub().loop
        self._watchers = loop.check(ref=False, priority=_FIRST), loop.prepare(ref=False, priority=_LAST)
        for watcher, called in zip(self._watchers, (self._begin, self._end), strict=True):
            watcher.start(called)

    def take_longest(self) -> float:
        """Return how many seconds the longest turn took since this was last asked; the one under way does not count."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _begin(self) -> None:
        self._began = self._clock()

    def _end(self) -> None:
        if self._began is not None:
            self._longest = max(self._longest, self._clock() - self._began)
            self._began = None
