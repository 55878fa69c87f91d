"""Retransmission buffer: records that were pushed to the store and are not known to be settled.

Knows records and when they were pushed. Must never know where they are pushed to, nor what a record says.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple

# Bytes of records that a process keeps; beyond, the oldest go. The settler usually has a record within half a second.
ROOM: Final = 16 * 1024 * 1024


class PushedRecord(NamedTuple):
    """A record, the worker that held its reservation, and when it was pushed, monotonic."""

    pushed_at: float
    worker: str
    record: bytes


class RetransmissionBuffer:
    """The records of one process, in the order in which they were pushed."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._size = 0
        self._records: deque[PushedRecord] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, worker: str, record: bytes) -> None:
        """Keep a record that has just been pushed."""
        self._records.append(PushedRecord(time.monotonic(), worker, record))
        self._size += len(record)
        while self._size > self._room:
            self._drop_oldest()

    def drop_before(self, moment: float) -> None:
        """Drop what was pushed before a moment of the monotonic clock."""
        while self._records and self._records[0].pushed_at < moment:
            self._drop_oldest()

    def take(self) -> deque[PushedRecord]:
        """Return what is kept, oldest first, and keep it no longer."""
        taken, self._records, self._size = self._records, deque(), 0
        return taken

    def put_back(self, records: deque[PushedRecord]) -> None:
        """Keep again what was taken and could not be dealt with."""
        self._records.extendleft(reversed(records))
        self._size += sum(len(one.record) for one in records)

    def _drop_oldest(self) -> None:
        self._size -= len(self._records.popleft().record)


BUFFER = RetransmissionBuffer()
