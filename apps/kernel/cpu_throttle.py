"""Work that nobody waits for, done in small pieces beside work that somebody does.

Knows the processor's scheduler. Must never know what is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# After so many items, so many seconds: some 0.3 ms of work at a time.
_ITEMS, _SECONDS = 8, 50e-6


def throttled(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and leave the processor to others for a moment after every few.

    Some kernels let whoever computes go on until their next tick (4 ms at 250 Hz), whoever else wakes up and whatever
    the priorities; to sleep is what they all understand. It costs no share of the processor, as yielding may.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS == 0:
            time.sleep(_SECONDS)
