"""Single-flight: of many concurrent calls for one key one does the work, and all get its result.

Those who wait go on one after the other: each wakes the next, behind all that has come to the event loop meanwhile.
Woken all at once, a thousand would have the loop for themselves, step by step.

Knows who is at it, and hands over what came of it, failures included. Must never keep an answer beyond that.
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
    """Whoever was at it was ended in the middle."""


class _Flight(Generic[Found]):
    """One who works, and those who wait for it, who came first first."""

    def __init__(self) -> None:
        self.outcome: Future[Found] = Future()
        self._waiting: deque[Future[None]] = deque()
        self._lock = Lock()

    def wait(self, patience: float) -> Found:
        """Return what came of it once it is this one's turn. Raises what came of it; TimeoutError."""
        turn: Future[None] = Future()
        with self._lock:
            waits = not self.outcome.done()
            if waits:
                self._waiting.append(turn)
        if waits:
            try:
                turn.result(patience)
            finally:
                # Who leaves early may have been woken meanwhile.
                with self._lock:
                    if turn.done():
                        self._wake_next()
                    else:
                        self._waiting.remove(turn)
        return self.outcome.result()

    def end(self, found: Found | None, error: Exception | None) -> None:
        """Tell what came of it."""
        with self._lock:
            if error is None:
                self.outcome.set_result(found)  # type: ignore[arg-type] # what was found, without an error
            else:
                self.outcome.set_exception(error)
            self._wake_next()

    def _wake_next(self) -> None:
        """Let the next one go on. Called with the lock held."""
        if self._waiting:
            self._waiting.popleft().set_result(None)


class SingleFlight(Generic[Key, Found]):
    """One flight a key at a time; `patience` is how many seconds the others wait for it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._flights: dict[Key, _Flight[Found]] = {}

    def is_under_way(self, key: Key) -> bool:
        """Tell whether somebody is at it."""
        return key in self._flights

    def run(self, key: Key, work: Callable[[], Found]) -> Found:
        """Return what `work` returns, done by whoever came first. Raises what it raises, and TimeoutError."""
        while True:
            mine: _Flight[Found] = _Flight()
            flight = self._flights.setdefault(key, mine)
            if flight is mine:
                return self._lead(key, mine, work)
            try:
                return flight.wait(self._patience)
            except NotYetError as error:
                if not flight.outcome.done():
                    raise TimeoutError("Somebody else did not find it out in time") from error
                raise
            except _LeftError:
                continue

    def _lead(self, key: Key, flight: _Flight[Found], work: Callable[[], Found]) -> Found:
        try:
            found = work()
        except BaseException as error:
            # Who is killed in the middle takes nobody along: another of those who wait begins anew.
            del self._flights[key]
            flight.end(None, error if isinstance(error, Exception) else _LeftError())
            raise
        del self._flights[key]
        flight.end(found, None)
        return found
