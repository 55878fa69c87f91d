"""Admission control and load shedding of one worker: fair queuing, and an early 503 for requests it has no time for.

Requests differ by their client only, not by their content.

Work on requests is limited by the length of one turn of the event loop: a request that arrives when the turn has
already lasted too long waits in a queue, and each turn starts as many of the queue as it has time for. So the loop
keeps turning quickly however many requests wait, and streams under way go on. Clients are started in rotation (fair
queuing): one that sends a thousand requests waits for its own, and others do not wait for them. A request that is let
into the queue is expected to be started well within the limit; any other is refused on arrival. A burst may fill the
queue. Once it has not been empty for a while it is kept short, for a long one lets everybody wait and serves no more
(the idea of CoDel, RFC 8289). A request that waits for a provider costs no time and does not count against it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Any, Final

import gevent
from greenlet import getcurrent, greenlet

from apps.kernel.concurrency.fairness import FairQueue
from apps.kernel.errors import Overloaded

# Seconds that a turn of the loop may last before new requests wait, and between two looks at the queue.
_MAX_TURN, _TICK = 0.020, 0.001
# The same while several clients have asked in the last second, which lets in about one request a turn. A request has
# some five steps, each in a turn of its own: in long turns all clients wait for the one with most requests, in the
# queue only that client does.
_SHARED_TURN, _SHARED_FOR = 0.001, 1.0
# Requests that leave the queue a second: the value before the first measurement; the seconds, or at first the
# requests, over which it is measured. After as many seconds without a queue the measurement starts again.
_FIRST_RATE: Final = 1000.0
_RATE_WINDOW, _FIRST_STARTS = 0.25, 32
# Share of the longest wait that a request in the queue may expect: in a burst, and once the queue has not been
# empty for so many seconds.
_BURST_SHARE, _STANDING_SHARE, _STANDING_AFTER = 0.8, 0.25, 0.5
# Commands without an answer of the store at which no request starts: in a stall of the store more would start in each
# turn, and all would go on in the turn in which it answers.
_MAX_UNANSWERED: Final = 32
# So many may always wait, however slowly the queue moves.
_ALWAYS_LET_IN = 8
# The message for a client whose request is shed.
SHED: Final = "The gateway has more requests than it can work on right now; try again shortly"
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
        max_wait: float,
        clock: Callable[[], float] = time.monotonic,
        hub: Any = None,
        unanswered: Callable[[], int] = lambda: 0,
    ) -> None:
        """Let `most` requests be worked on or wait, each no longer than `max_wait` seconds.

        `hub` is whose loop it is (gevent's, unless given): requests that wait switch to it. `unanswered` tells how many
        commands of requests the store has not answered.
        """
        self.in_progress = 0
        self._most = most
        self._max_wait = max_wait
        self._unanswered = unanswered
        self._clock = clock
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._hub: Any = hub or gevent.get_hub()
        self._turn_began = clock()
        # Since the last look at the queue: when that was, and how many requests have been answered.
        self._round_began, self._left = self._turn_began, 0
        self._stamp = self._hub.loop.check(ref=False, priority=_FIRST)
        self._stamp.start(self._begin_turn)
        self._tick = self._hub.loop.timer(_TICK, _TICK, ref=False, priority=_LAST)
        self._waiting_since = self._empty_since = -math.inf
        # The client of the last request, and until when turns are shared.
        self._last_client: Hashable = None
        self._shared_until = -math.inf
        # Requests that leave the queue a second, and what it is measured from.
        self._rate, self._rate_is_measured = _FIRST_RATE, False
        self._started, self._counted_since = 0, 0.0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def check(self, client: Hashable) -> None:
        """Raise Overloaded when a request of the client that came now would be shed: before its body is read."""
        if seconds := self.shed(client):
            raise Overloaded(SHED, retry_after=seconds)

    def shed(self, client: Hashable) -> int:
        """Return after how many seconds a client whose request is shed may ask again, 0 when it is not shed."""
        waiting = len(self._queue)
        full = self.in_progress + waiting >= self._most
        if not waiting and not full:
            return 0
        ahead = self._queue.count_ahead_of(client)
        if not full:
            standing = self._clock() - self._waiting_since > _STANDING_AFTER
            share = _STANDING_SHARE if standing else _BURST_SHARE
            full = ahead > _ALWAYS_LET_IN and ahead > self._rate * self._max_wait * share
        return self._seconds_for(ahead) if full else 0

    def note(self, client: Hashable) -> None:
        """Note who asks: turns are shared while several clients do."""
        if client != self._last_client:
            if self._last_client is not None:
                self._shared_until = self._clock() + _SHARED_FOR
            self._last_client = client

    def enter_at_once(self, client: Hashable) -> bool:
        """Let a client's request in if there is time for it now, and return whether there was; `leave` follows then."""
        self.note(client)
        if self.waiting or self.in_progress >= self._most or self._has_lasted(self._turn_began):
            return False
        if self._unanswered() >= _MAX_UNANSWERED:
            return False
        self.in_progress += 1
        return True

    def enter_in_turn(self, client: Hashable) -> None:
        """Let a request in for which there was no time at once, when it is its client's turn; `leave` follows.

        Raises Overloaded.
        """
        self.check(client)
        one = _Waiting(self._clock())
        if not self.waiting:
            self._begin_queue(one.since)
        self._queue.put(client, one)
        try:
            self._hub.switch()
        finally:
            one.greenlet = None
        if one.late:
            raise Overloaded(SHED, retry_after=self._seconds_for(self._queue.count_ahead_of(client)))
        self.in_progress += 1

    def leave(self) -> None:
        """Note that a request has been answered."""
        self.in_progress -= 1
        self._left += 1

    def _has_lasted(self, since: float) -> bool:
        """Tell whether what began then has taken as long as a turn may."""
        now = self._clock()
        return now - since > (_SHARED_TURN if now < self._shared_until else _MAX_TURN)

    def _begin_turn(self) -> None:
        self._turn_began = self._clock()

    def _start_waiting(self) -> None:
        """Start who has waited, refuse who has waited too long. Runs in the event loop.

        As many are started as there is time for, after the work done since the last look: requests started before
        go first. Without time, half as many as were answered, so that those in progress become fewer; at least one.
        """
        now, taken = self._clock(), 0
        least, self._left = max(self._left // 2, 1), 0
        while self.waiting and self._unanswered() < _MAX_UNANSWERED:
            if taken >= least and self._has_lasted(self._round_began):
                break
            one = self._queue.take()
            if one.greenlet is None:
                continue
            # It was expected to be started in time; a worker that stood still may find it is not.
            taken += 1
            one.late = now - one.since > self._max_wait
            self._started += not one.late
            one.greenlet.switch()
        self._measure(now)
        self._round_began = self._clock()
        if not self.waiting:
            self._empty_since = now
            self._tick.stop()

    def _begin_queue(self, now: float) -> None:
        if now - self._empty_since > _RATE_WINDOW:
            self._rate, self._rate_is_measured = _FIRST_RATE, False
        self._waiting_since = self._counted_since = now
        self._round_began = self._turn_began
        self._started = self._left = 0
        self._tick.start(self._start_waiting)

    def _measure(self, now: float) -> None:
        passed = now - self._counted_since
        if passed > _RATE_WINDOW or (not self._rate_is_measured and self._started >= _FIRST_STARTS and passed > 0):
            rate = max(self._started / passed, 1.0)
            self._rate = (self._rate + rate) / 2 if self._rate_is_measured else rate
            self._rate_is_measured = True
            self._started, self._counted_since = 0, now

    def _seconds_for(self, ahead: int) -> int:
        """Return in how many seconds so many will have been started."""
        return max(1, math.ceil(ahead / self._rate))
