"""Turn times: how long the event loop worked at most between two looks at what has arrived.

The time in which the loop waits for something to happen is no part of a turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

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
