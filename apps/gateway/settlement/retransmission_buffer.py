"""Retransmission buffer: records that were pushed to the store and are not known to be settled.

Records are copied into one block of memory, used in turn: to keep each where it was made would give the next request
new memory for its own, which took 1 to 5 % of a busy worker's time (measured twice).
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
        # Made with the first record: few processes push any.
        self._block = bytearray()
        # When each was pushed, its worker, and its bytes' first and end, counted as if the block had no end.
        self._places: deque[tuple[float, str, int, int]] = deque()
        self._end = 0
        # Records taken and put back, older than all in the block; and the bytes of both.
        self._returned: deque[PushedRecord] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._returned) + len(self._places)

    def add(self, worker: str, record: bytes) -> None:
        """Keep a record that has just been pushed; one that is larger than all the room is not kept."""
        room, first = self._room, self._end
        if len(record) > room:
            return
        if not self._block:
            self._block = bytearray(room)
        if first % room + len(record) > room:
            # It has to be in one piece.
            first += room - first % room
        end = first + len(record)
        places = self._places
        while places and places[0][2] < end - room:
            while self._returned:
                self._drop_oldest_returned()
            self._drop_oldest_place()
        self._block[first % room : first % room + len(record)] = record
        places.append((time.monotonic(), worker, first, end))
        self._end = end
        self._size += len(record)
        while self._returned and self._size > room:
            self._drop_oldest_returned()

    def drop_before(self, moment: float) -> None:
        """Drop the records pushed before a moment of the monotonic clock."""
        while self._returned and self._returned[0].pushed_at < moment:
            self._drop_oldest_returned()
        while self._places and self._places[0][0] < moment:
            self._drop_oldest_place()

    def take(self) -> deque[PushedRecord]:
        """Remove and return all records, oldest first."""
        taken, self._returned = self._returned, deque()
        for pushed_at, worker, first, end in self._places:
            start = first % self._room
            taken.append(PushedRecord(pushed_at, worker, bytes(self._block[start : start + end - first])))
        self._places.clear()
        self._size = 0
        return taken

    def put_back(self, records: deque[PushedRecord]) -> None:
        """Keep records again that were taken and could not be pushed."""
        self._returned.extendleft(reversed(records))
        self._size += sum(len(one.record) for one in records)

    def _drop_oldest_returned(self) -> None:
        self._size -= len(self._returned.popleft().record)

    def _drop_oldest_place(self) -> None:
        _, _, first, end = self._places.popleft()
        self._size -= end - first


BUFFER = RetransmissionBuffer()
