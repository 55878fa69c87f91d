"""Outbox reader: what a settler reads next, of all shards in turn, so that a busy one holds up no other.

A cluster has no command that waits on streams of several slots, so the reader searches now and then for the streams
with entries.
"""

from __future__ import annotations

import time
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.valkey.redis import client
from apps.kernel.valkey.shards import ask_those_there
from apps.kernel.valkey.store_keys import SHARD_COUNT, SHARDS

log = structlog.get_logger(__name__)

# How often each shard is searched for what a consumer left unfinished, and how long to wait where nothing is to be
# read, in seconds.
SEARCH_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1


class OutboxReader:
    """One consumer of all streams. `name` is its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The shard whose turn it is.
        self._turn = 0
        self.search_again()

    def search_again(self) -> None:
        """Search for unfinished records with the next look, as at first and after a failure."""
        self._search_at = [0.0] * SHARD_COUNT

    def read(self, count: int, wait_ms: int) -> list[OutboxMessage]:
        """Return the next messages, at most so many, after a while where there are none.

        Returns the records of the shards that answer. Raises RedisError where one does not and the others have nothing.
        """
        if SHARD_COUNT == 1:
            return self._read(0, count, wait_ms)
        lengths, failure = _lengths()
        found: list[OutboxMessage] = []
        for shard in (*range(self._turn, SHARD_COUNT), *range(self._turn)):
            if not lengths.get(shard):
                continue
            try:
                found += self._read(shard, count - len(found), 0)
            except RedisError as error:
                log.warning("outbox.shard_not_read", shard=shard, error=type(error).__name__)
                self._search_at[shard] = 0.0
                failure = failure or error
            if len(found) >= count:
                self._turn = (shard + 1) % SHARD_COUNT
                break
        if not found:
            if failure is not None:
                raise failure
            time.sleep(min(_POLL_SECONDS, wait_ms / 1000))
        return found

    def _read(self, shard: int, count: int, wait_ms: int) -> list[OutboxMessage]:
        left = time.monotonic() >= self._search_at[shard]
        if left:
            outbox.prepare_shard(shard)
        messages = outbox.read_batch(self._name, count, wait_ms, left=left, shard=shard)
        if left and len(messages) < count:
            self._search_at[shard] = time.monotonic() + SEARCH_SECONDS
        return messages


def _lengths() -> tuple[dict[int, int], RedisError | None]:
    """Return how many messages each shard has that answers, and the first error of those that do not."""
    store: Any = client()
    pipe = store.pipeline(transaction=False)
    for stream in outbox.STREAMS:
        pipe.xlen(stream)
    try:
        return dict(zip(SHARDS, map(int, pipe.execute()), strict=True)), None
    except RedisError:
        # One server away fails all: each is asked by itself.
        answers, failure = ask_those_there(lambda shard: (shard, int(store.xlen(outbox.STREAMS[shard]))))
        return dict(answers), failure
