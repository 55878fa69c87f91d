"""Thread pool for work on large bodies, so that the event loop goes on meanwhile.

Python code on a thread lets the loop's thread in every few milliseconds; a single call into C does not, so what is done
here goes through a large text in pieces. Knows sizes. Must never know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

from gevent.lock import BoundedSemaphore
from gevent.threadpool import ThreadPool

from apps.kernel.errors import Overloaded

T = TypeVar("T")

# Bytes from which on a body's work leaves the event loop: below, it takes a few milliseconds at most.
LARGE: Final = 256 * 1024
# Few: they take the time of the same processor, and each makes the event loop wait once more.
_THREADS: Final = 2
# Seconds that work may wait for a thread. What is refused then is told to come again after as many as these take.
PATIENCE: Final = 10.0
_RETRY_AFTER: Final = 2.0


def offload(size: int, work: Callable[[], T]) -> T:
    """Return what the work on so many bytes returns; large work is done on a thread while other greenlets go on.

    The work must not wait for anything, nor touch what belongs to the event loop. Raises what it raises, and Overloaded
    when no thread was free for too long.
    """
    if size < LARGE:
        return work()
    threads, free = _pool()
    if not free.acquire(timeout=PATIENCE):
        raise Overloaded("Too many large requests at once; try again shortly", retry_after=_RETRY_AFTER)
    try:
        outcome = threads.spawn(_outcome_of, work)
    except BaseException:
        free.release()
        raise
    # When the work has ended, and not when whoever waits for it has: a client may leave before.
    outcome.rawlink(lambda _: free.release())
    done, value = cast(tuple[bool, Any], outcome.get())
    try:
        if done:
            return cast(T, value)
        raise value
    finally:
        # An exception holds this frame, and with it the body: the frame must not hold the exception.
        del value, outcome


def _outcome_of(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether the work was done, and its result or exception: one that leaves a thread is printed."""
    try:
        return True, work()
    except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
        return False, error


@cache
def _pool() -> tuple[ThreadPool, BoundedSemaphore]:
    """Return this process's threads, and what says whether one of them is free."""
    return ThreadPool(_THREADS), BoundedSemaphore(_THREADS)
