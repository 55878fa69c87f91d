"""Fair share: places in one process of which one owner may have a part at a time, so that others always find some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from apps.kernel.errors import Overloaded, RateLimited

Owner = TypeVar("Owner", bound=Hashable)


class FairShare(Generic[Owner]):
    """So many places, and how many of them one owner may have. `what` is what takes one, in the plural."""

    def __init__(self, places: int, of_one: int, what: str) -> None:
        self._places, self._of_one, self._what = places, of_one, what
        self._taken: Counter[Owner] = Counter()

    def take(self, owner: Owner) -> None:
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

    def give_back(self, owner: Owner) -> None:
        """Give back a place that was taken."""
        self._taken[owner] -= 1
        if self._taken[owner] <= 0:
            del self._taken[owner]
