"""Dead letters: records in the outbox that cannot be read, kept in a stream of their own for an operator.

Knows the stream. Must never drop a record.
"""

from __future__ import annotations

from apps.gateway.settlement.outbox import OutboxMessage
from apps.kernel.redis import client

STREAM = "outbox:broken"


def add(message: OutboxMessage) -> None:
    """Keep a message that cannot be read. Raises RedisError."""
    client().xadd(STREAM, {"worker": message.worker, "record": message.record})


def count() -> int:
    """Return how many there are. Raises RedisError."""
    return int(client().xlen(STREAM))
