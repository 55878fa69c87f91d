"""Fair queue: serves clients in rotation, so that a client with a thousand items delays only itself."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

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

    def count_ahead_of(self, client: Hashable) -> int:
        """Return the position at which a new item of the client would be taken, itself included."""
        return min(self._length, (len(self._by_client.get(client, ())) + 1) * len(self._by_client))
