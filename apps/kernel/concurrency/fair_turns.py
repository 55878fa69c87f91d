"""Fair turns: the owner that was served least recently is served next, however much each of them has waiting.

A queue that tenants share takes a bounded piece of work at a turn, so a tenant waits for one piece of each of the
others, whatever crowd one of them brings. In one process; several processes are each fair for themselves. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

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
