"""Admission control and load shedding of one worker: who is worked on now, who waits for a turn, who gets 503 at once.

Knows how busy the event loop is. Must never know what a request asks for.

Work on requests is bounded by the time that one turn of the event loop takes: a request that arrives when the turn has
already lasted too long waits in a queue, and each turn starts as many of the queue as it has time for. So the loop
keeps turning quickly however many requests wait, streams under way go on, and who would have to wait longer than the
limit is told so within one turn. A request that waits for a provider costs no time and does not count against it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from greenlet import getcurrent, greenlet

from apps.kernel.errors import Overloaded

# Seconds that a turn of the loop may last before new requests wait, and between two looks at the queue.
_LONGEST_TURN, _TICK = 0.020, 0.001
# How many requests leave the queue is counted over so many seconds, at first over so many requests.
_RATE_WINDOW, _FIRST_STARTS = 0.25, 32
# Of the longest wait: what may be expected of a request that is let into the queue (expectations err), and what the
# first of the queue has waited before an expectation is believed, unless the queue is longer than so many.
_EXPECTED_SHARE, _PROVEN_SHARE, _LONG_QUEUE = 0.75, 0.25, 256
# libev's priorities go from -2 to 2. The stamp comes before all that a turn does, the queue after it.
_FIRST, _LAST = 2, -2


class _Waiting:
    """A request in the queue."""

    __slots__ = ("greenlet", "late", "since")

    def __init__(self, since: float) -> None:
        # None once it no longer waits.
        self.greenlet: greenlet | None = getcurrent()
        self.since = since
        self.late = False


class AdmissionControl:
    """The requests of one worker. Call it from greenlets of the event loop that it was made in."""

    def __init__(
        self,
        most: int,
        longest_wait: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Let `most` requests be worked on or wait, each no longer than `longest_wait` seconds."""
        self.in_progress = 0
        self._most = most
        self._longest_wait = longest_wait
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._hub: Any = gevent.get_hub()
        self._turn_began = clock()
        self._stamp = self._hub.loop.check(ref=False, priority=_FIRST)
        self._stamp.start(self._begin_turn)
        self._tick = self._hub.loop.timer(_TICK, _TICK, ref=False, priority=_LAST)
        # Requests that left the queue a second, None before it is known; and what it is counted from.
        self._rate: float | None = None
        self._started, self._counted_since = 0, 0.0

    def check(self) -> None:
        """Raise Overloaded when a request that came now would be shed: asked before its body is read."""
        queue = self._queue
        if self.in_progress + len(queue) >= self._most:
            raise self._overloaded()
        if self._estimated_wait() > self._longest_wait * _EXPECTED_SHARE and (
            len(queue) > _LONG_QUEUE or self._clock() - queue[0].since > self._longest_wait * _PROVEN_SHARE
        ):
            raise self._overloaded()

    def enter(self) -> bool:
        """Let a request in and return whether it had to wait for that; `leave` follows. Raises Overloaded."""
        if self._queue or self._clock() - self._turn_began > _LONGEST_TURN:
            self.check()
            self._wait_for_turn()
            self.in_progress += 1
            return True
        if self.in_progress >= self._most:
            raise self._overloaded()
        self.in_progress += 1
        return False

    def leave(self) -> None:
        """Note that a request has been answered."""
        self.in_progress -= 1

    def _begin_turn(self) -> None:
        self._turn_began = self._clock()

    def _wait_for_turn(self) -> None:
        waiting = _Waiting(self._clock())
        if not self._queue:
            self._started, self._counted_since = 0, waiting.since
            self._tick.start(self._start_waiting)
        self._queue.append(waiting)
        try:
            self._hub.switch()
        finally:
            waiting.greenlet = None
        if waiting.late:
            raise self._overloaded()

    def _start_waiting(self) -> None:
        """Start who has waited, at least one a turn; refuse who has waited too long. Runs in the event loop."""
        now = self._clock()
        queue, any_left = self._queue, False
        while queue and not (any_left and self._clock() - self._turn_began > _LONGEST_TURN):
            waiting = queue.popleft()
            if waiting.greenlet is None:
                continue
            any_left, waiting.late = True, now - waiting.since > self._longest_wait
            self._started += not waiting.late
            waiting.greenlet.switch()
        passed = now - self._counted_since
        if passed > _RATE_WINDOW or (self._rate is None and self._started >= _FIRST_STARTS and passed > 0):
            self._rate = self._started / passed if self._rate is None else (self._rate + self._started / passed) / 2
            self._started, self._counted_since = 0, now
        if not queue:
            self._rate = None
            self._tick.stop()

    def _estimated_wait(self) -> float:
        if not self._queue or self._rate is None:
            return 0.0
        return len(self._queue) / max(self._rate, 1.0)

    def _overloaded(self) -> Overloaded:
        return Overloaded(
            "The gateway has more requests than it can work on right now; try again shortly",
            retry_after=max(1, math.ceil(self._estimated_wait())),
        )
