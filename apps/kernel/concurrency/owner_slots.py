"""Slots by owner: at most so many pieces of work at a time for each owner in this process; further ones wait in line.

Others never wait for an owner whose work hangs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

import gevent
from gevent.lock import BoundedSemaphore

from apps.kernel.errors import RateLimited

# Seconds after which a client whose organization has no slot free may try again.
_RETRY_AFTER: Final = 2.0


class _Line:
    """The free slots of one owner, and how many hold or want one."""

    __slots__ = ("free", "users")

    def __init__(self, slots: int) -> None:
        self.free = BoundedSemaphore(slots)
        self.users = 0


class OwnerSlots:
    """So many slots for each owner; an owner without work takes no memory."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._lines: dict[Hashable, _Line] = {}

    def __len__(self) -> int:
        """Return how many owners hold a slot or wait for one."""
        return len(self._lines)

    def acquire(self, owner: Hashable, patience: float) -> bool:
        """Take a slot of an owner, waiting at most `patience` seconds; return whether there was one.

        Give it back with `release`. Off the event loop's thread nothing is bounded: such a thread holds up only itself.
        """
        if not gevent.get_hub().main_hub:
            return True
        line = self._lines.setdefault(owner, _Line(self.each))
        line.users += 1
        taken = False
        try:
            taken = bool(line.free.acquire(timeout=max(patience, 0.0)))
        finally:
            if not taken:
                self._leave(owner, line)
        return taken

    def release(self, owner: Hashable) -> None:
        """Give a slot back, on the thread that took it."""
        if not gevent.get_hub().main_hub:
            return
        line = self._lines[owner]
        line.free.release()
        self._leave(owner, line)

    @contextmanager
    def slot(self, owner: Hashable, patience: float, refusal: str) -> Iterator[None]:
        """Hold a slot of an owner within this block. Raises RateLimited with the words of `refusal`."""
        if not self.acquire(owner, patience):
            raise RateLimited(refusal, code="too_many_outside_calls", retry_after=_RETRY_AFTER)
        try:
            yield
        finally:
            self.release(owner)

    def _leave(self, owner: Hashable, line: _Line) -> None:
        line.users -= 1
        if not line.users:
            del self._lines[owner]
