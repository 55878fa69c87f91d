"""Reading order of one worker: of many connections that something has arrived on at once, whose is read first.

To read, parse and refuse a request takes a fraction of a millisecond; a thousand of them in one turn of the event loop
are a second in which nobody else is answered. So in a turn that has lasted too long already, connections that have
something to read wait in a queue, from which addresses are served in rotation (fair queuing), a few milliseconds'
worth in each turn. Knows the event loop, and one address from another. Must never know what is read.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, Final

import gevent
from greenlet import getcurrent, greenlet

# Seconds that a turn of the loop may last before what has arrived waits; seconds of each turn that the queue has; and
# seconds between two looks at it.
_LONGEST_TURN: Final = 0.010
_SHARE: Final = 0.010
_TICK: Final = 0.001
# libev's priorities go from -2 to 2. The stamp comes before all that a turn does, the queue after it.
_FIRST, _LAST = 2, -2


class _Reader:
    """A connection in the queue."""

    __slots__ = ("greenlet",)

    def __init__(self) -> None:
        # None once it no longer waits.
        self.greenlet: greenlet | None = getcurrent()


class ReadingOrder:
    """The connections of one worker. Call it from greenlets of the event loop that it was made in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, hub: Any = None) -> None:
        """`hub` is whose loop it is (gevent's, unless given): connections that wait switch to it."""
        # Connections in the queue.
        self.waiting = 0
        self._clock = clock
        # By address, the one whose turn is next first; an address without a connection in the queue is not in it.
        self._queue: OrderedDict[Hashable, deque[_Reader]] = OrderedDict()
        self._hub: Any = hub or gevent.get_hub()
        self._turn_began = clock()
        self._stamp = self._hub.loop.check(ref=False, priority=_FIRST)
        self._stamp.start(self._begin_turn)
        self._tick = self._hub.loop.timer(_TICK, _TICK, ref=False, priority=_LAST)

    def wait(self, address: Hashable) -> None:
        """Wait until it is the address's turn to be read; mostly that is at once."""
        if not self.waiting and self._clock() - self._turn_began <= _LONGEST_TURN:
            return
        if not self.waiting:
            self._tick.start(self._go_on)
        one = _Reader()
        self._queue.setdefault(address, deque()).append(one)
        self.waiting += 1
        try:
            self._hub.switch()
        finally:
            one.greenlet = None

    def is_crowded(self) -> bool:
        """Return whether connections wait to be read."""
        return self.waiting > 0

    def _begin_turn(self) -> None:
        self._turn_began = self._clock()

    def _go_on(self) -> None:
        """Let connections be read: for their share of the turn, and one of each address in any case. Runs in the event
        loop."""
        end, least = self._clock() + _SHARE, len(self._queue)
        while self.waiting and (least > 0 or self._clock() < end):
            least -= 1
            if (reader := self._take_next().greenlet) is not None:
                reader.switch()
        if not self.waiting:
            self._tick.stop()

    def _take_next(self) -> _Reader:
        """Take the next out of the queue: one of each address, then another of each."""
        address, own = next(iter(self._queue.items()))
        one = own.popleft()
        self.waiting -= 1
        if own:
            self._queue.move_to_end(address)
        else:
            del self._queue[address]
        return one
