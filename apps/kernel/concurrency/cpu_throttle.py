"""CPU throttling: runs background work in small pieces with pauses, so that requests do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# Pause length after this many items: about 0.3 ms of work at a time.
_ITEMS, _SECONDS = 8, 50e-6


def throttled(items: Iterable[T]) -> Iterator[T]:
    """Yield items, with a short sleep after every few.

    Some kernels let a computing process run until their next tick (4 ms at 250 Hz), regardless of priorities and of
    waking processes; sleeping works everywhere and, unlike yielding, does not reduce the process's share.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS == 0:
            time.sleep(_SECONDS)
