"""Wake queue of one worker: wakes readable connections round-robin by client, a few milliseconds in each loop turn.

The event loop wakes all that are ready before it looks for others again. One client that asks on a thousand connections
at once, or leaves them, would have everybody else wait for all of them. Knows who waits, and whose it is. Must never
know what has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final

import gevent
from greenlet import getcurrent

from gateway_project.http.fair_queue import FairQueue

# Seconds of one turn of the loop in which connections go on as they become ready, and as many for those that wait for a
# turn.
LONGEST: Final = 0.003


class WakeQueue:
    """Wakes greenlets of the hub that it is made in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = gevent.get_hub()
        self._clock = clock
        # The turn of the loop in which somebody was last ready, and when that was first so.
        self._turn, self._turn_began = 0, 0.0
        self._later: FairQueue[_Waiting] = FairQueue()
        self._next_turn = self._hub.loop.timer(0.0, ref=False)

    def wait(self, readable: Any, client: Hashable, ready: Callable[[], object]) -> None:
        """Wait until there is something to read, as a watcher tells, and for the turn of this client.

        `ready` is called once there is something: the turn may come later.
        """
        waiting = _Waiting(getcurrent(), readable, client, ready)
        readable.start(self._wake, waiting)
        try:
            self._hub.switch()
        finally:
            waiting.over = True
            readable.stop()

    def _wake(self, waiting: _Waiting) -> None:
        waiting.ready()
        turn, now = self._hub.loop.iteration, self._clock()
        if turn != self._turn:
            self._turn, self._turn_began = turn, now
        if now - self._turn_began < LONGEST:
            waiting.greenlet.switch()
            return
        # It would be told of again in every turn.
        waiting.readable.stop()
        self._later.put(waiting.client, waiting)
        if len(self._later) == 1:
            self._next_turn.start(self._wake_some)

    def _wake_some(self) -> None:
        """Wake those that wait for their turns, for as long as one may last. Runs in the event loop."""
        until = self._clock() + LONGEST
        while self._later and self._clock() < until:
            waiting = self._later.take()
            # Who was interrupted meanwhile does not wait any more.
            if not waiting.over:
                waiting.greenlet.switch()
        if self._later:
            self._next_turn.start(self._wake_some)


class _Waiting:
    """A greenlet that waits, and whether it has been woken, or interrupted."""

    __slots__ = ("client", "greenlet", "over", "readable", "ready")

    def __init__(self, greenlet: Any, readable: Any, client: Hashable, ready: Callable[[], object]) -> None:
        self.greenlet = greenlet
        self.readable = readable
        self.client = client
        self.ready = ready
        self.over = False
