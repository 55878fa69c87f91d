"""Wake queue of one worker: wakes readable connections round-robin by client, a few milliseconds in each loop turn.

The event loop wakes all that are ready before it looks for others again. One client that asks on a thousand connections
at once, or leaves them, or has a thousand requests ready on one, would have everybody else wait for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from apps.kernel.concurrency.turn_queue import MAX_SECONDS, TurnQueue, TurnWaiter


class WakeQueue(TurnQueue):
    """Wakes greenlets of the hub that it is made in.

    For so many seconds of a turn connections go on as they become readable; the others, and those that step aside, wait
    for their turn.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        # The last turn of the loop in which a connection was ready, and the time when that turn began.
        self._turn, self._turn_began = 0, 0.0

    def wait(self, readable: Any, client: Hashable, ready: Callable[[], object]) -> None:
        """Wait until there is something to read, as a watcher tells, and for the turn of this client.

        `ready` is called once there is something: the turn may come later.
        """
        waiting = _ReadWaiter(readable, client, ready)
        readable.start(self._wake, waiting)
        try:
            self._hub.switch()
        finally:
            waiting.over = True
            readable.stop()

    def _wake(self, waiting: _ReadWaiter) -> None:
        waiting.ready()
        turn, now = self._hub.loop.iteration, self._clock()
        if turn != self._turn:
            self._turn, self._turn_began = turn, now
        if now - self._turn_began < MAX_SECONDS:
            waiting.greenlet.switch()
            return
        # Otherwise it would be reported again in every turn.
        waiting.readable.stop()
        self.put(waiting.client, waiting)


class _ReadWaiter(TurnWaiter):
    """A greenlet that waits for bytes, and whose they are."""

    __slots__ = ("client", "readable", "ready")

    def __init__(self, readable: Any, client: Hashable, ready: Callable[[], object]) -> None:
        super().__init__()
        self.readable = readable
        self.client = client
        self.ready = ready
