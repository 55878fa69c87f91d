"""Thread pool for work on large bodies, so that the event loop goes on meanwhile.

A single call into C holds up the loop for as long as it lasts, so what is done here goes through a large text in
pieces. Knows sizes. Must never know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from apps.kernel.errors import Overloaded
from apps.kernel.native_thread_pool import NativeThreadPool

T = TypeVar("T")

# Bytes from which on a body's work leaves the event loop: below, it takes a few milliseconds at most.
LARGE: Final = 256 * 1024
# Few: they take the time of the same processor, and each makes the event loop wait once more.
_THREADS: Final = NativeThreadPool(2)
# Seconds that work may wait for a thread.
PATIENCE: Final = 10.0


def offload(size: int, work: Callable[[], T]) -> T:
    """Return what the work on so many bytes returns; large work is done on a thread while other greenlets go on.

    The work must not wait for anything, nor touch what belongs to the event loop. Raises what it raises, and Overloaded
    when no thread was free for too long.
    """
    if size < LARGE:
        return work()
    return _THREADS.run(work, patience=PATIENCE, refusal="Too many large requests at once; try again shortly")


def offload_or_run(size: int, work: Callable[[], T]) -> T:
    """Return what the work returns, as `offload` does; work that gets no thread in time is done on the event loop.

    For what can no longer be refused: an answer that is paid for, and its record. The work never raises Overloaded.
    """
    try:
        return offload(size, work)
    except Overloaded:
        return work()
