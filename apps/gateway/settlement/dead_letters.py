"""Dead letters: records in the outbox that cannot be read, kept in a stream of their own for an operator.

Knows the stream. Must never drop a record.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.redis import client
from apps.kernel.store_keys import money_key

STREAM = money_key("outbox:broken")


def add(message: OutboxMessage) -> None:
    """Keep a message that cannot be read. Raises RedisError."""
    client().xadd(STREAM, {"worker": message.worker, "record": message.record})


def replay() -> int:
    """Put those that there are back into the outbox, and return how many: after an upgrade they may be readable.

    One that still cannot be read comes back here. Each moves in one step, and is settled once. Raises RedisError.
    """
    store: Any = client()
    moved = 0
    for identifier, fields in store.xrange(STREAM):
        pipe = store.pipeline(transaction=True)
        pipe.xadd(outbox.STREAM, fields)
        pipe.xdel(STREAM, identifier)
        pipe.execute()
        moved += 1
    return moved


def count() -> int:
    """Return how many there are. Raises RedisError."""
    return int(client().xlen(STREAM))
