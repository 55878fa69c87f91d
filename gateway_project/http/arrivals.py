"""Arrivals: which of many waiting connections have something to read, asked of the kernel once for all of them.

While a worker sheds load it asks every few milliseconds only. What has come by then is taken together, and most of it
is refused: the fifth in a row costs a fifth of one that comes alone, which finds none of its code in the processor's
caches. Knows descriptors. Must never know what has arrived.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final, Protocol

from gevent.monkey import get_original

# Seconds between two looks while load is shed; a refusal may take fifty milliseconds.
BETWEEN_LOOKS: Final = 0.010
# So many are asked for at a time.
_MOST: Final = 256
_READ: Final = 1  # libev's constant.


class Arrivals(Protocol):
    """What tells that something has come."""

    def expect(self, descriptor: int, tell: Callable[[], object]) -> None:
        """Call `tell` in the event loop, once, when there is something to read, or the end."""

    def forget(self, descriptor: int) -> None:
        """Do not call any more."""


class PolledArrivals:
    """One epoll, which the event loop watches in the place of all that are in it."""

    def __init__(self, hub: Any, is_shedding: Callable[[], bool]) -> None:
        self._is_shedding = is_shedding
        self._waiting: dict[int, Callable[[], object]] = {}
        # gevent takes away what can wait; this one never does.
        self._epoll = get_original("select", "epoll")()
        self._watcher = hub.loop.io(self._epoll.fileno(), _READ)
        self._watcher.start(self._look)
        self._next_look = hub.loop.timer(BETWEEN_LOOKS)

    def expect(self, descriptor: int, tell: Callable[[], object]) -> None:
        """Call `tell` in the event loop, once, when there is something to read, or the end."""
        self._waiting[descriptor] = tell
        events = select.EPOLLIN | select.EPOLLONESHOT
        try:
            self._epoll.modify(descriptor, events)
        except FileNotFoundError:
            # Its first time; the kernel forgets a descriptor that is closed.
            self._epoll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Do not call any more."""
        if self._waiting.pop(descriptor, None):
            self._epoll.unregister(descriptor)

    def _look(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _MOST):
            if tell := self._waiting.pop(descriptor, None):
                tell()
        if self._is_shedding():
            self._watcher.stop()
            self._next_look.start(self._look)
        elif not self._watcher.active:
            self._watcher.start(self._look)


class WatchedArrivals:
    """A watcher of the event loop for each: where there is no epoll."""

    def __init__(self, hub: Any, _is_shedding: Callable[[], bool]) -> None:
        self._loop = hub.loop
        self._watchers: dict[int, Any] = {}

    def expect(self, descriptor: int, tell: Callable[[], object]) -> None:
        """Call `tell` in the event loop, once, when there is something to read, or the end."""
        watcher = self._watchers[descriptor] = self._loop.io(descriptor, _READ)
        watcher.start(self._arrived, descriptor, tell)

    def forget(self, descriptor: int) -> None:
        """Do not call any more."""
        if watcher := self._watchers.pop(descriptor, None):
            watcher.stop()
            watcher.close()

    def _arrived(self, descriptor: int, tell: Callable[[], object]) -> None:
        self.forget(descriptor)
        tell()


def arrivals_of(hub: Any, is_shedding: Callable[[], bool]) -> Arrivals:
    """Return what this system has."""
    return (PolledArrivals if hasattr(select, "EPOLLONESHOT") else WatchedArrivals)(hub, is_shedding)
