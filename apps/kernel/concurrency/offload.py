"""Thread pool for work on large bodies, so that the event loop keeps running.

A single call into C blocks the loop, so such work should process a large text in pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

from apps.kernel.concurrency.native_thread_pool import NativeThreadPool
from apps.kernel.errors import Overloaded

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Bytes from which a body's work leaves the event loop: below, it takes a few milliseconds at most.
LARGE: Final = 256 * 1024
# Few: they share the processor, and each delays the event loop.
_THREADS: Final = NativeThreadPool(2)
# Seconds that work may wait for a thread.
PATIENCE: Final = 10.0


def offload(size: int, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Return the result of work on a body of this size; work on a large one runs on a thread while other greenlets run.

    The work must not wait for anything, nor use objects of the event loop. Raises its exceptions, and Overloaded if no
    thread was free for too long.
    """
    if size < LARGE:
        return work(*arguments)
    return _THREADS.run(
        partial(work, *arguments), patience=PATIENCE, refusal="Too many large requests at once; try again shortly"
    )


def offload_or_run(size: int, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Return what the work returns, as `offload` does; work that gets no thread in time is done on the event loop.

    For work that must not fail: an answer that is paid for, and its record. The work never raises Overloaded.
    """
    try:
        return offload(size, work, *arguments)
    except Overloaded:
        return work(*arguments)
