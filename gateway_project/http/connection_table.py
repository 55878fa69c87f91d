"""The open connections of one worker: how many each address has, which are idle, and which to close when full.

Readable connections are woken round-robin by client, a few milliseconds in each turn of the event loop.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Hashable
from itertools import chain
from types import TracebackType
from typing import Any, Literal

import gevent
from greenlet import getcurrent

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
            self.hub.switch()
        finally:
            waiting.over = True
            readable.stop()

    def _wake(self, waiting: _ReadWaiter) -> None:
        waiting.ready()
        turn, now = self.hub.loop.iteration, self._clock()
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


# Connections that are kept free below the most that a worker takes, so that it goes on accepting.
_RESERVE = 16
# Seconds that an idle connection is left open when the worker stops: what a client sends just then is still answered.
_LINGER = 1.0


class ConnectionTable:
    """The connections of one worker."""

    def __init__(
        self,
        most: int,
        per_address: int,
        first_byte_timeout: float,
        keepalive: float,
        closed: Callable[[str], object] = lambda _reason: None,
    ) -> None:
        """`closed` is called with the reason each time the server closes a connection before its client does."""
        self._most = most
        self._per_address = per_address
        self._first_byte_timeout = first_byte_timeout
        self._keepalive = keepalive
        self._closed = closed
        self._open = 0
        self._by_address: Counts[str] = Counts()
        # In the order in which they began to wait: for a first request, or for another.
        self.fresh: dict[Idle, None] = {}
        self.kept: dict[Idle, None] = {}
        self.wake_queue = WakeQueue()
        self._stopping_since: float | None = None

    def opened(self, address: str | None) -> bool:
        """Count a new connection; False when its address has too many at work. Without an address it is a proxy's.

        Where there is no room for it, the connection that has been idle for longest goes, those that never sent a
        request first: one of the same address when that has as many as it may, any when the worker is nearly full.
        """
        if address:
            if self._by_address[address] >= self._per_address and not self._end_oldest("address_limit", address):
                self._closed("address_limit")
                return False
            self._by_address[address] += 1
        self._open += 1
        if self._open > self._most - _RESERVE:
            self._end_oldest("no_room")
        return True

    def _end_oldest(self, reason: str, address: str | None = None) -> bool:
        """End the connection that has been idle for longest, of an address if one is given; tell if there is one."""
        for idle in chain(self.fresh, self.kept):
            if not idle.ending and (address is None or idle.address == address):
                self._closed(reason)
                idle.end()
                return True
        return False

    def gone(self, address: str | None) -> None:
        """Count a connection that `opened` let in and that is over."""
        self._open -= 1
        if address:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def end_overdue(self, stopping: bool) -> None:
        """End who has been idle for too long, and when the worker stops, everybody who is."""
        now = time.monotonic()
        if stopping:
            self._stopping_since = self._stopping_since or now
            if now - self._stopping_since > _LINGER:
                for idle in [idle for idle in chain(self.fresh, self.kept) if not idle.begun]:
                    idle.end()
        for waiting, patience in ((self.fresh, self._first_byte_timeout), (self.kept, self._keepalive)):
            overdue = []
            for idle in waiting:
                if idle.since > now - patience:
                    break
                if not idle.begun:
                    overdue.append(idle)
            for idle in overdue:
                idle.end()


class Idle:
    """A connection waiting for its next request; ends when one comes, its time is over, or it has to go."""

    def __init__(self, table: ConnectionTable, address: str | None = None) -> None:
        self.address = address
        self.since = 0.0
        # Whether something of the request is there, and whether the wait is about to be ended.
        self.begun = self.ending = False
        self._wake_queue = table.wake_queue
        self._waiting = table.fresh
        self._afterwards = table.kept
        self._greenlet = getcurrent()
        self._over = _Over()

    def __enter__(self) -> Idle:
        self.since = time.monotonic()
        self.begun = False
        self._waiting[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        self._waiting.pop(self, None)
        self._waiting = self._afterwards
        if error is not self._over:
            return None
        # It holds the frames that it went through, which hold this: of a thousand connections that end at once, the
        # garbage would hold everybody up.
        self._over.__traceback__ = None
        return True

    def wait_anew(self) -> None:
        """Begin to wait for another request, the one before having been answered."""
        self._waiting.pop(self, None)
        self._waiting = self._afterwards
        self.__enter__()

    def wait_for(self, readable: Any) -> None:
        """Wait until there is something to read, as a watcher tells, and for this client's turn."""
        self._wake_queue.wait(readable, self.address, self._begin)

    def step_aside(self) -> None:
        """Let others go on, until the loop has looked for what has arrived and it is this client's turn."""
        self._wake_queue.wait_for_turn(self.address)

    def _begin(self) -> None:
        self.begun = True

    def end(self) -> None:
        """Stop waiting, unless a request has come meanwhile."""
        if not self.ending:
            self.ending = True
            gevent.get_hub().loop.run_callback(self._end)

    def _end(self) -> None:
        self.ending = False
        if self in self._waiting:
            del self._waiting[self]
            self._greenlet.throw(self._over)


class _Over(BaseException):
    """The exception that ends a connection's wait."""
