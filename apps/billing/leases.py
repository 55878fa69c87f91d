"""Which workers live: each beats; one that has not been heard of for a while leaves its reservations to the sweeper.

Knows names and the store's clock. Must never know what a worker holds beyond whether it holds anything.
"""

from __future__ import annotations

from apps.kernel.redis import LuaScript, client

WORKERS = "workers"
# A worker that has not been heard of for so long (seconds, by Redis' clock) is dead.
LEASE_SECONDS = 20.0

# In one step: a worker believed dead may just be making a reservation.
_FORGET = LuaScript("return redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZREM', KEYS[2], ARGV[1]) + 1 or 0")


def notes_key(worker: str) -> str:
    """Return the Redis key of a worker's notes."""
    return f"notes:{worker}"


def beat(worker: str) -> None:
    """Tell that a worker lives. Raises RedisError."""
    client().zadd(WORKERS, {worker: _now()})


def retire(worker: str) -> None:
    """Let the sweeper take over what the worker may have left, at once. Raises RedisError."""
    client().zadd(WORKERS, {worker: 0})


def dead_workers() -> list[str]:
    """Return the workers whose lease ran out. Raises RedisError."""
    return [str(name) for name in client().zrangebyscore(WORKERS, "-inf", _now() - LEASE_SECONDS)]


def forget(worker: str) -> bool:
    """Strike a dead worker off once all its notes are released; return whether it was. Raises RedisError."""
    return bool(_FORGET([notes_key(worker), WORKERS], [worker]))


def _now() -> float:
    """Return the store's own time in seconds: the one clock that all hosts share."""
    seconds, microseconds = client().time()
    return float(seconds) + float(microseconds) / 1e6
