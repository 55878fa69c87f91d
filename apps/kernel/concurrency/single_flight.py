"""Single-flight: one of many concurrent calls with the same key does the work, and all get its result.

Waiting calls continue one after the other: each wakes the next, after other pending events. If all were woken at once,
a thousand would occupy the event loop. Results and failures are not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class _LeftError(Exception):
    """The working call was killed."""


class _Flight(Generic[Found]):
    """The working call, and the waiting ones in order of arrival."""

    def __init__(self) -> None:
        self.outcome: Future[Found] = Future()
        self._waiting: deque[Future[None]] = deque()
        self._lock = Lock()

    def wait(self, patience: float) -> Found:
        """Return the result when it is this call's turn. Raises its error; TimeoutError."""
        turn: Future[None] = Future()
        with self._lock:
            waits = not self.outcome.done()
            if waits:
                self._waiting.append(turn)
        if waits:
            try:
                turn.result(patience)
            finally:
                # A call that leaves early may already have been woken.
                with self._lock:
                    if turn.done():
                        self._wake_next()
                    else:
                        self._waiting.remove(turn)
        return self.outcome.result()

    def end(self, found: Found | None, error: Exception | None) -> None:
        """Publish the outcome."""
        with self._lock:
            if error is None:
                self.outcome.set_result(found)  # type: ignore[arg-type] # the result, without an error
            else:
                self.outcome.set_exception(error)
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake the next waiting call. Call it with the lock held."""
        if self._waiting:
            self._waiting.popleft().set_result(None)


class SingleFlight(Generic[Key, Found]):
    """One flight per key at a time; `patience` is how many seconds other calls wait for it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._flights: dict[Key, _Flight[Found]] = {}

    def is_under_way(self, key: Key) -> bool:
        """Return whether a call is working."""
        return key in self._flights

    def run(self, key: Key, work: Callable[[], Found]) -> Found:
        """Return the result of `work`, run by the first call. Raises its exceptions, and TimeoutError."""
        while True:
            mine: _Flight[Found] = _Flight()
            flight = self._flights.setdefault(key, mine)
            if flight is mine:
                return self._lead(key, mine, work)
            try:
                return flight.wait(self._patience)
            except NotYetError as error:
                if not flight.outcome.done():
                    raise TimeoutError("Another call did not finish in time") from error
                raise
            except _LeftError:
                continue

    def _lead(self, key: Key, flight: _Flight[Found], work: Callable[[], Found]) -> Found:
        try:
            found = work()
        except BaseException as error:
            # If the working call is killed, one of the waiting calls starts over.
            del self._flights[key]
            flight.end(None, error if isinstance(error, Exception) else _LeftError())
            raise
        del self._flights[key]
        flight.end(found, None)
        return found
