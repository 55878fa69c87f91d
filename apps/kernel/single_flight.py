"""Single-flight: of many concurrent calls for one key one does the work, and all get its result.

Knows who is at it, and hands over what came of it, failures included. Must never keep an answer beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class _LeftError(Exception):
    """Whoever was at it was ended in the middle."""


class SingleFlight(Generic[Key, Found]):
    """One flight a key at a time; `patience` is how many seconds the others wait for it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._flights: dict[Key, Future[Found]] = {}

    def is_under_way(self, key: Key) -> bool:
        """Tell whether somebody is at it."""
        return key in self._flights

    def run(self, key: Key, work: Callable[[], Found]) -> Found:
        """Return what `work` returns, done by whoever came first. Raises what it raises, and TimeoutError."""
        while True:
            mine: Future[Found] = Future()
            flight = self._flights.setdefault(key, mine)
            if flight is mine:
                return self._lead(key, mine, work)
            try:
                return flight.result(self._patience)
            except NotYetError as error:
                if not flight.done():
                    raise TimeoutError("Somebody else did not find it out in time") from error
                raise
            except _LeftError:
                continue

    def _lead(self, key: Key, flight: Future[Found], work: Callable[[], Found]) -> Found:
        try:
            found = work()
        except BaseException as error:
            # Who is killed in the middle takes nobody along: another of those who wait begins anew.
            del self._flights[key]
            flight.set_exception(error if isinstance(error, Exception) else _LeftError())
            raise
        del self._flights[key]
        flight.set_result(found)
        return found
