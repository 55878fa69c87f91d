"""Queue that is served in rotation by client (fair queuing): who puts in a thousand things waits for its own.

Knows one client from another. Must never know what waits.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits, by client: one of each is taken, then another of each."""

    def __init__(self) -> None:
        self._length = 0
        # By client, the one whose turn is next first; a client for whom nothing waits is not in it.
        self._by_client: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return self._length

    def put(self, client: Hashable, item: T) -> None:
        """Let an item of the client wait behind its others."""
        self._by_client.setdefault(client, deque()).append(item)
        self._length += 1

    def take(self) -> T:
        """Return the item whose turn it is. Raises StopIteration when nothing waits."""
        client, own = next(iter(self._by_client.items()))
        item = own.popleft()
        self._length -= 1
        if own:
            self._by_client.move_to_end(client)
        else:
            del self._by_client[client]
        return item

    def count_ahead_of(self, client: Hashable) -> int:
        """Return how many would be taken before, and with, what the client put in now."""
        return min(self._length, (len(self._by_client.get(client, ())) + 1) * len(self._by_client))
