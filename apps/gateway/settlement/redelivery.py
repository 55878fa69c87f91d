"""Redelivery: claim messages that another consumer of the outbox has held for too long by this process's own clock.

The store counts by a clock that may be set: one handed out before it was set back seems to be worked on for as long as
it was set back by, though its reader is dead. So each process notes since when it has seen a message at its reader.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from apps.kernel.redis import client

# Messages that are looked at, the oldest first.
_MAX_MESSAGES = 20
# By stream; by message, reader and how often it was handed out: when it was first seen there, on the monotonic clock.
_seen_in: defaultdict[str, dict[tuple[str, str, int], float]] = defaultdict(dict)


def claim_pending(stream: str, group: str, reader: str, after: float) -> list[tuple[str, dict[str, str]]]:
    """Claim and return the messages that other consumers have held, unchanged, for so many seconds. Raises RedisError.

    A reader that works on one of them after all does nothing that may not be done twice.
    """
    store: Any = client()
    now = time.monotonic()
    pending = store.xpending_range(stream, group, "-", "+", _MAX_MESSAGES)
    others = {
        (str(one["message_id"]), str(one["consumer"]), int(one["times_delivered"]))
        for one in pending
        if one["consumer"] != reader
    }
    seen = _seen_in[stream]
    for one in seen.keys() - others:
        del seen[one]
    for one in others:
        seen.setdefault(one, now)
    stuck = sorted(one[0] for one, since in seen.items() if now - since >= after)
    return list(store.xclaim(stream, group, reader, 0, stuck)) if stuck else []
