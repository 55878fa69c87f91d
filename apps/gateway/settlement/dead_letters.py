"""Dead letters: records in the outbox that cannot be read, kept in a stream of their own for an operator.

A record is never dropped.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.metrics import DEAD_LETTERS
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.valkey.redis import client, money_keys
from apps.kernel.valkey.shards import ask_each

# A stream for each shard, whose records go back to its outbox.
STREAMS = money_keys("outbox:broken")


def add(message: OutboxMessage) -> None:
    """Keep a message that cannot be read. Raises RedisError."""
    client().xadd(STREAMS[message.shard], {"worker": message.worker, "record": message.record})
    DEAD_LETTERS.inc()


def replay() -> int:
    """Put all of them back into the outbox, and return how many: after an upgrade they may be readable.

    One that still cannot be read comes back here. Each moves in one step, and is settled once. Raises RedisError.
    """
    store: Any = client()
    moved = 0
    for stream, broken in zip(outbox.STREAMS, STREAMS, strict=True):
        for identifier, fields in store.xrange(broken):
            pipe = store.pipeline(transaction=True)
            pipe.xadd(stream, fields)
            pipe.xdel(broken, identifier)
            pipe.execute()
            moved += 1
    return moved


def count() -> int:
    """Return how many there are. Raises RedisError."""
    return sum(ask_each(lambda shard: int(client().xlen(STREAMS[shard]))))
