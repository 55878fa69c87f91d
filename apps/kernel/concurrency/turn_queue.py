"""Turn queue: greenlets that yield continue in a later turn of the event loop, in rotation by client, for up to 3 ms.

A turn begins when the loop polls for events. `gevent.sleep(0)` does not wait for that: such greenlets alternate among
themselves for fifty steps or more, while a client whose bytes have arrived waits for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import WeakKeyDictionary

import gevent
from greenlet import getcurrent

from apps.kernel.concurrency.fairness import FairQueue

# Seconds per turn for the greenlets that wait here.
MAX_SECONDS: Final = 0.003


class TurnWaiter:
    """A waiting greenlet, and whether it has continued or was interrupted."""

    __slots__ = ("greenlet", "over")

    def __init__(self) -> None:
        self.greenlet: Any = getcurrent()
        self.over = False


class TurnQueue:
    """Wakes greenlets of its hub. Each continues at most once per turn, however short its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = gevent.get_hub()
        self._clock = clock
        self._queue: FairQueue[TurnWaiter] = FairQueue()
        # A zero timer: libev calls it after the next poll, without waiting.
        self._next_turn = self._hub.loop.timer(0.0)

    def wait_for_turn(self, client: Hashable = None) -> None:
        """Yield, and return in a later turn of the loop, when it is this client's turn."""
        waiting = TurnWaiter()
        self.put(client, waiting)
        try:
            self._hub.switch()
        finally:
            waiting.over = True

    def put(self, client: Hashable, waiting: TurnWaiter) -> None:
        """Wake a greenlet in a later turn; it has switched to the hub, or is about to."""
        self._queue.put(client, waiting)
        if len(self._queue) == 1:
            self._next_turn.start(self._wake_some)

    def _wake_some(self) -> None:
        """Wake those that waited when the turn began, as time allows. Runs in the event loop."""
        until = self._clock() + MAX_SECONDS
        try:
            for _ in range(len(self._queue)):
                waiting = self._queue.take()
                # An interrupted greenlet no longer waits.
                if not waiting.over:
                    waiting.greenlet.switch()
                if self._clock() >= until:
                    break
        finally:
            if self._queue:
                self._next_turn.start(self._wake_some)


# A worker has one hub; a waiting thread has its own.
_queues: WeakKeyDictionary[Any, TurnQueue] = WeakKeyDictionary()


def let_others_go_on(client: Hashable = None) -> None:
    """Let the event loop poll for and serve events before this greenlet continues."""
    hub = gevent.get_hub()
    queue = _queues.get(hub)
    if queue is None:
        queue = _queues[hub] = TurnQueue()
    queue.wait_for_turn(client)
