"""Fairness between owners in one process: fair queue, fair share, slots by owner, fair turns. Pure.

A queue that tenants share takes a bounded piece of work at a turn, so a tenant waits for one piece of each of the
others, however much each of them has waiting. Several processes are each fair for themselves.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import gevent
from gevent.lock import BoundedSemaphore

from apps.kernel.errors import Overloaded, RateLimited

Holder = TypeVar("Holder", bound=Hashable)


class FairShare(Generic[Holder]):
    """So many places, and how many of them one owner may have. `what` is what takes one, in the plural."""

    def __init__(self, places: int, of_one: int, what: str) -> None:
        self._places, self._of_one, self._what = places, of_one, what
        self._taken: Counter[Holder] = Counter()

    def take(self, owner: Holder) -> None:
        """Take a place. Raises RateLimited where the owner has its part, Overloaded where no place is left."""
        if self._taken[owner] >= self._of_one:
            raise RateLimited(
                f"More than {self._of_one} {self._what} of one organization at once; try again when one has ended",
                code="concurrency_exceeded",
                retry_after=1,
            )
        if self._taken.total() >= self._places:
            raise Overloaded(f"Too many {self._what} are under way; try again shortly")
        self._taken[owner] += 1

    def give_back(self, owner: Holder) -> None:
        """Give back a place that was taken."""
        self._taken[owner] -= 1
        if self._taken[owner] <= 0:
            del self._taken[owner]


T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by client: one of each client is taken, then another of each."""

    def __init__(self) -> None:
        self._length = 0
        # By client, the next one first; clients without items are removed.
        self._by_client: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._length

    def put(self, client: Hashable, item: T) -> None:
        """Append an item to the client's queue."""
        self._by_client.setdefault(client, deque()).append(item)
        self._length += 1

    def take(self) -> T:
        """Return the next item. Raises StopIteration if the queue is empty."""
        client, own = next(iter(self._by_client.items()))
        item = own.popleft()
        self._length -= 1
        if own:
            self._by_client.move_to_end(client)
        else:
            del self._by_client[client]
        return item

    def peek(self) -> T:
        """Return the next item, which stays. Raises StopIteration if the queue is empty."""
        return next(iter(self._by_client.values()))[0]

    def count_ahead_of(self, client: Hashable) -> int:
        """Return the position at which a new item of the client would be taken, itself included."""
        return min(self._length, (len(self._by_client.get(client, ())) + 1) * len(self._by_client))


Owner = TypeVar("Owner", bound=Hashable)
Item = TypeVar("Item")

# Owners that are remembered; past them all begin again as never served.
MAX_OWNERS: Final = 10_000


class FairTurns(Generic[Owner]):
    """When each owner was served last, counted in turns."""

    def __init__(self) -> None:
        self._turn = 0
        self._served: dict[Owner, int] = {}

    def order(self, items: Iterable[Item], owner_of: Callable[[Item], Owner]) -> list[Item]:
        """Return the items in the order of their turns; those of one owner keep their order."""
        return sorted(items, key=lambda item: self._served.get(owner_of(item), 0))

    def take(self, owner: Owner) -> None:
        """Note that an owner is served now."""
        if len(self._served) >= MAX_OWNERS:
            self._served.clear()
        self._turn += 1
        self._served[owner] = self._turn


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
