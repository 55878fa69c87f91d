"""Turn queue: greenlets that step aside go on in a later turn of the event loop, in rotation by client, for 3 ms of it.

A turn begins when the loop asks the system what has arrived. `gevent.sleep(0)` does not wait for that: greenlets that
sleep so go on among themselves for fifty steps or more, and a client whose bytes have come waits for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import WeakKeyDictionary

import gevent
from greenlet import getcurrent

from apps.kernel.fair_queue import FairQueue

# Seconds of one turn in which those that wait here go on, one after the other.
MAX_SECONDS: Final = 0.003


class TurnWaiter:
    """A greenlet that waits, and whether it has gone on, or was interrupted."""

    __slots__ = ("greenlet", "over")

    def __init__(self) -> None:
        self.greenlet: Any = getcurrent()
        self.over = False


class TurnQueue:
    """Wakes greenlets of the hub that it is made in. Each goes on once in a turn at most, however short its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = gevent.get_hub()
        self._clock = clock
        self._queue: FairQueue[TurnWaiter] = FairQueue()
        # A zero timer: libev calls it behind the next look at what has arrived, and does not wait for anything.
        self._next_turn = self._hub.loop.timer(0.0)

    def wait_for_turn(self, client: Hashable = None) -> None:
        """Let others go on, and return in a later turn of the loop, when it is this client's turn."""
        waiting = TurnWaiter()
        self.put(client, waiting)
        try:
            self._hub.switch()
        finally:
            waiting.over = True

    def put(self, client: Hashable, waiting: TurnWaiter) -> None:
        """Have a greenlet woken in a later turn that has switched to the hub, or is about to."""
        self._queue.put(client, waiting)
        if len(self._queue) == 1:
            self._next_turn.start(self._wake_some)

    def _wake_some(self) -> None:
        """Wake those that waited when the turn began, as far as there is time. Runs in the event loop."""
        until = self._clock() + MAX_SECONDS
        try:
            for _ in range(len(self._queue)):
                waiting = self._queue.take()
                # Who was interrupted meanwhile does not wait any more.
                if not waiting.over:
                    waiting.greenlet.switch()
                if self._clock() >= until:
                    break
        finally:
            if self._queue:
                self._next_turn.start(self._wake_some)


# A worker has one hub; a thread that waits for something has another.
_queues: WeakKeyDictionary[Any, TurnQueue] = WeakKeyDictionary()


def let_others_go_on(client: Hashable = None) -> None:
    """Let the event loop look for what has arrived and serve it, before this greenlet goes on with its work."""
    hub = gevent.get_hub()
    queue = _queues.get(hub)
    if queue is None:
        queue = _queues[hub] = TurnQueue()
    queue.wait_for_turn(client)
