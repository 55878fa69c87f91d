"""Thread pool of native threads beside the event loop, for computing that would hold up every other greenlet.

Python code on a thread lets the loop's thread in every few milliseconds; a single call into C does not. Knows how much
is done at a time, and how long others wait. Must never know what the work is.

A process ends only when its threads are idle. Python ends a thread that comes back from C code to an interpreter that
is gone, by unwinding its stack; C++ (RE2, greenlets) and Rust do not survive that, and the process aborts.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import gevent
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original
from gevent.threadpool import ThreadPool

from apps.kernel.errors import Overloaded

T = TypeVar("T")

# Whether this is a thread of such a pool.
_on_pool_thread: ContextVar[bool] = ContextVar("on_pool_thread", default=False)
# Seconds after which a client whose work found no thread may try again: about as long as such work takes.
_RETRY_AFTER: Final = 2.0
# Seconds for the work under way when the process ends; after that the process ends at once, with exit code 1.
END_PATIENCE: Final = 10.0
# Between two looks, and for an idle thread to come to rest.
_PAUSE: Final = 0.01


class NativeThreadPool:
    """So many threads of this process, started when they are first needed."""

    def __init__(self, threads: int, *, awaited: bool = True) -> None:
        """Not `awaited`: the process may end while the threads wait in plain C, as the library's name lookups do."""
        self._threads = threads
        self._awaited = awaited

    @cached_property
    def _pool(self) -> tuple[ThreadPool, BoundedSemaphore]:
        """The threads, and what says whether one of them is free."""
        threads = ThreadPool(self._threads)
        if self._awaited:
            atexit.register(_await_idleness, threads)
        return threads, BoundedSemaphore(self._threads)

    def run(self, work: Callable[[], T], *, patience: float | None = None, refusal: str = "") -> T:
        """Return what the work returns, while other greenlets go on.

        It is done there and then on a thread of a pool, and on any other thread beside the event loop, as development
        servers and tests have: that one holds up nobody but itself, and no loop but the pool's may wait for the pool.
        The work must not wait for anything, nor touch what belongs to the event loop. Raises what it raises, and
        Overloaded with the words of `refusal` when no thread was free for `patience` seconds (None: for ever).
        """
        if _on_pool_thread.get() or not gevent.get_hub().main_hub:
            return work()
        threads, free = self._pool
        if not free.acquire(timeout=patience):
            raise Overloaded(refusal, retry_after=_RETRY_AFTER)
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
            # An exception holds this frame, and with it what was worked on: the frame must not hold the exception.
            del value, outcome


def _outcome_of(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether the work was done, and its result or exception: one that leaves a thread is printed."""
    _on_pool_thread.set(True)
    try:
        return True, work()
    except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
        return False, error


def _await_idleness(threads: ThreadPool) -> None:
    """Wait, when the process ends, until no thread of the pool works. None gets new work: no greenlet runs any more."""
    sleep = get_original("time", "sleep")
    for _ in range(round(END_PATIENCE / _PAUSE)):
        if not len(threads):
            # From the end of its work to its wait for more a thread runs some lines of Python.
            sleep(_PAUSE)
            return
        sleep(_PAUSE)
    sys.stderr.write(f"a thread still computes after {END_PATIENCE:.0f} s: the process ends without it\n")
    sys.stderr.flush()
    os._exit(1)
