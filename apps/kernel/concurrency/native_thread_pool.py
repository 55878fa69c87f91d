"""Thread pools of native threads beside the event loop, for computing that would block every other greenlet.

Python code on a thread lets the loop's thread run every few milliseconds; a single call into C does not, so work on a
large text is done in pieces. A process ends only when its threads are idle. Python ends a thread that returns from C
code to a finalized interpreter by unwinding its stack; C++ (RE2, greenlets) and Rust do not survive that, and the
process aborts.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property, partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast

import gevent
from gevent.lock import BoundedSemaphore
from gevent.monkey import get_original, is_module_patched
from gevent.threadpool import ThreadPool

from apps.kernel.errors import Overloaded

T = TypeVar("T")

# Whether this is a thread of such a pool.
_on_pool_thread: ContextVar[bool] = ContextVar("on_pool_thread", default=False)
# Seconds for a client's retry if no thread was free: about as long as such work takes.
_RETRY_AFTER: Final = 2.0
# Seconds for running work when the process ends; then it exits at once, with code 1.
END_PATIENCE: Final = 10.0
# Seconds between checks, and for an idle thread to settle.
_PAUSE: Final = 0.01


class NativeThreadPool:
    """A number of threads of this process, started on first use."""

    def __init__(self, threads: int, *, awaited: bool = True) -> None:
        """If not `awaited`, the process may end while the threads wait in C code, as the name lookups do."""
        self._threads = threads
        self._awaited = awaited

    @cached_property
    def _pool(self) -> tuple[ThreadPool, BoundedSemaphore]:
        """The threads, and a semaphore for the free ones."""
        threads = ThreadPool(self._threads)
        if self._awaited:
            atexit.register(_await_idleness, threads)
        return threads, BoundedSemaphore(self._threads)

    def run(self, work: Callable[[], T], *, patience: float | None = None, refusal: str = "") -> T:
        """Return the result of the work, while other greenlets run.

        It runs directly on a thread of a pool, and on any thread outside the event loop, as in development servers and
        tests: such a thread blocks only itself, and must not wait for the pool from another loop. The work must not
        wait for anything, nor use objects of the event loop. Raises its exceptions, and Overloaded with the message
        `refusal` if no thread was free for `patience` seconds (None: no limit).
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
        # Released when the work ends, not when its caller stops waiting: a client may leave before.
        outcome.rawlink(lambda _: free.release())
        done, value = cast(tuple[bool, Any], outcome.get())
        try:
            if done:
                return cast(T, value)
            raise value
        finally:
            # An exception holds this frame, and with it the work's data: the frame must not hold the exception.
            del value, outcome


def beside_requests(work: Callable[[], T]) -> T:
    """Return the result of work that is rare and takes long; it runs on a thread, one at a time, while requests go on.

    In a process without an event loop it runs here. The work must not wait for anything, nor use objects of the event
    loop. Raises its exceptions.
    """
    return _ONE_AT_A_TIME.run(work) if is_module_patched("socket") else work()


class ComputedOnce(Generic[T]):
    """A value of the process that is computed when it is first asked for, `beside_requests`.

    If the work fails, the next caller tries again.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._computing = BoundedSemaphore()
        self._found: list[T] = []

    def get(self) -> T:
        """Return the value. Raises the exceptions of the work."""
        if not self._found:
            with self._computing:
                if not self._found:
                    self._found.append(beside_requests(self._work))
        return self._found[0]


def _outcome_of(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether the work succeeded, and its result or exception: an exception that leaves a thread is printed."""
    _on_pool_thread.set(True)
    try:
        return True, work()
    except BaseException as error:  # noqa: BLE001 - raised again in the caller
        return False, error


def _await_idleness(threads: ThreadPool) -> None:
    """Wait at process exit until no thread of the pool works. No new work starts, because greenlets no longer run."""
    sleep = get_original("time", "sleep")
    for _ in range(round(END_PATIENCE / _PAUSE)):
        if not len(threads):
            # After its work, a thread still runs some lines of Python before it waits.
            sleep(_PAUSE)
            return
        sleep(_PAUSE)
    sys.stderr.write(f"a thread is still computing after {END_PATIENCE:.0f} s: exiting without it\n")
    sys.stderr.flush()
    os._exit(1)


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

# Bytes from which a body's work leaves the event loop: below, it takes a few milliseconds at most.
LARGE: Final = 256 * 1024
# Few: they share the processor, and each delays the event loop.
_THREADS: Final = NativeThreadPool(2)
_ONE_AT_A_TIME: Final = NativeThreadPool(1)
# Seconds that work may wait for a thread.
PATIENCE: Final = 10.0


def offload(size: int, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Return the result of work on a body of this size; work on a large one runs on a thread while other greenlets run.

    The work must not wait for anything, nor use objects of the event loop. Raises its exceptions, and Overloaded if no
    thread was free for too long.
    """
    if size < LARGE:
        return work(*arguments)
    return _THREADS.run(
        partial(work, *arguments), patience=PATIENCE, refusal="Too many large requests at once; try again shortly"
    )


def offload_or_run(size: int, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Return what the work returns, as `offload` does; work that gets no thread in time is done on the event loop.

    For work that must not fail: an answer that is paid for, and its record. The work never raises Overloaded.
    """
    try:
        return offload(size, work, *arguments)
    except Overloaded:
        return work(*arguments)
