"""Retransmission: records that the store acknowledged and lost before they were settled are pushed again.

A store loses data when it evicts keys, is emptied, or an older copy of it takes over. Each worker looks for that with
its heartbeat; then it pushes again what has no row yet. Settlement writes each record once, however often it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
import structlog

from apps.gateway.metrics import RECORDS_RETRANSMITTED
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import BUFFER, PushedRecord
from apps.kernel.postgres import database
from apps.kernel.valkey.redis import ServerState, flush, read_server_state
from apps.logs import writer

log = structlog.get_logger(__name__)

# Seconds within which a record that has been sent is in the stream: the store's time budget, and a worker's hiccup.
_UNDER_WAY: Final = 2.0


class _Identified(msgspec.Struct):
    """The fields read from a record."""

    id: UUID


class Retransmission:
    """One process's state of the store at its last look."""

    def __init__(self, read_state: Callable[[], ServerState] = read_server_state) -> None:
        self._read_state = read_state
        self._state: ServerState | None = None

    def look(self) -> int:
        """Push again what the store may have lost since the last look, and forget what has been settled.

        Returns how many records were pushed. Raises RedisError, DatabaseError, OSError; then the next look does all.
        """
        began = time.monotonic()
        # First: records evicted after this are counted below, or at the next look.
        age = outbox.depth()[1]
        state = self._read_state()
        if state == self._state:
            # All that was pushed before the oldest that waits has been settled.
            BUFFER.drop_before(began - age - _UNDER_WAY)
            return 0
        pushed = self._push_again()
        _tell(self._state, state, pushed)
        self._state = state
        return pushed

    def _push_again(self) -> int:
        """Push the records that have no row; return how many."""
        # A record that the store took before it lost its data is kept by now: its answer comes before this one.
        flush()
        records = BUFFER.take()
        pushed = 0
        try:
            settled = _settled_among(records)
            while records:
                if _id_of(records[0]) not in settled:
                    outbox.push_tracked(records[0].worker, records[0].record)
                    pushed += 1
                records.popleft()
        finally:
            BUFFER.put_back(records)
            RECORDS_RETRANSMITTED.inc(pushed)
        return pushed


def _tell(before: ServerState | None, now: ServerState, pushed: int) -> None:
    """Log a store that evicts keys, was emptied, or was restarted; nothing at the first look."""
    if before is None:
        return
    evicted = now.evicted_keys - (before.evicted_keys if before.run == now.run else 0)
    if evicted:
        log.error("store.evicts", keys=evicted, records_pushed_again=pushed)
    elif before.run == now.run:
        log.error("store.emptied", records_pushed_again=pushed)
    else:
        log.warning("store.restarted", records_pushed_again=pushed)


def _settled_among(records: Iterable[PushedRecord]) -> set[UUID]:
    ids = [identifier for identifier in map(_id_of, records) if identifier is not None]
    return database.read(partial(writer.find_written, ids)) if ids else set()


def _id_of(record: PushedRecord) -> UUID | None:
    """Return the id of a record's request; None of one that cannot be read, which the settler puts aside."""
    try:
        return msgspec.json.decode(record.record, type=_Identified).id
    except (msgspec.MsgspecError, UnicodeError):
        return None


RETRANSMISSION = Retransmission()
