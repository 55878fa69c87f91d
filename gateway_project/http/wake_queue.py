"""Wake queue of one worker: connections on which something has arrived go on a few each turn of the event loop, in
rotation by client.

The event loop wakes all that are ready before it looks for others again. One client that asks on a thousand connections
at once, or leaves them, would have everybody else wait for all of them. Knows who waits, and whose it is. Must never
know what has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import gevent
from greenlet import getcurrent

from gateway_project.http.fair_queue import FairQueue

# So many go on in one turn of the loop as they become ready, and so many of those that wait for a turn: a few
# milliseconds of work.
MOST_WOKEN: Final = 8


class WakeQueue:
    """Wakes greenlets of the hub that it is made in."""

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._turn = self._woken = 0
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
        turn = self._hub.loop.iteration
        if turn != self._turn:
            self._turn, self._woken = turn, 0
        if self._woken < MOST_WOKEN:
            self._woken += 1
            waiting.greenlet.switch()
            return
        # It would be told of again in every turn.
        waiting.readable.stop()
        self._later.put(waiting.client, waiting)
        if len(self._later) == 1:
            self._next_turn.start(self._wake_some)

    def _wake_some(self) -> None:
        """Wake as many as one turn may, of those that wait for theirs. Runs in the event loop."""
        woken = 0
        while self._later and woken < MOST_WOKEN:
            waiting = self._later.take()
            # Who was interrupted meanwhile does not wait any more.
            if not waiting.over:
                woken += 1
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
