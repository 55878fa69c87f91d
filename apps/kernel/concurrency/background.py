"""Background work: on its own greenlet in a gevent worker, else immediately, and in small pieces with pauses.

Requests do not wait for it. Failures are logged only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import gevent
import structlog
from gevent.monkey import is_module_patched

log = structlog.get_logger(__name__)


def run_in_background(work: Callable[[], object]) -> None:
    """Run the work without blocking the caller; failures are logged."""
    if is_module_patched("socket"):
        gevent.spawn(_contained, work)
    else:
        _contained(work)


def _contained(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("background.failed")


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
