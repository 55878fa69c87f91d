"""Worker leases: each worker sends heartbeats; the reservations of one that stops go to the sweeper.

Times are the store's, whose clock may be set back.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from functools import cache, lru_cache, partial

from apps.kernel.valkey.redis import SHARDS, LuaScript, client, lua_key, money_key, money_keys, server_of_shard
from apps.kernel.valkey.shards import ask_each

# By shard: a worker has a lease and notes in each.
WORKERS = money_keys("workers")
NOTES = "notes:"
# A worker without a heartbeat for this long (seconds, by Redis' clock) is dead.
LEASE_SECONDS = 20.0
# Seconds that the store's clock and this process's may drift apart between two checks; more means that a clock was set.
MAX_DRIFT = 5.0

# For scripts that sum open reservations on a balance, or on each of a shard: `promised(name)`, `promised()`.
SUM_HOLDS_LUA = f"""
    local function promised(name)
      local sums = {{}}
      local notes = {lua_key(NOTES)}
      for _, worker in ipairs(redis.call('ZRANGE', {lua_key("workers")}, 0, -1)) do
        for _, text in ipairs(redis.call('HVALS', notes .. worker)) do
          if not name or string.find(text, name, 1, true) then
            local note = cjson.decode(text)
            for _, one in ipairs(note.holds) do sums[one] = (sums[one] or 0) + tonumber(note.amount) end
            for _, one in ipairs(note.counts or {{}}) do
              sums[one[1]] = (sums[one[1]] or 0) + one[2] + one[3] * tonumber(note.written)
            end
          end
        end
      end
      return sums
    end
"""

# By the clock that measures the lease, in one step: a process that stood still in between would send an old moment.
_BEAT = LuaScript(
    """
    -- KEYS: the workers; ARGV: the worker
    local clock = redis.call('TIME')
    redis.call('ZADD', KEYS[1], tonumber(clock[1]) + tonumber(clock[2]) / 1e6, ARGV[1])
    """
)
# Atomic: a worker that looks dead may be making a reservation.
_FORGET = LuaScript("return redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZREM', KEYS[2], ARGV[1]) + 1 or 0")
_DEAD = LuaScript(
    """
    -- KEYS: the workers; ARGV: seconds of a lease
    local clock = redis.call('TIME')
    local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
    -- Heartbeats in the future: the clock was set back. They count from now on.
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.6f', now), '+inf')) do
      redis.call('ZADD', KEYS[1], 'XX', now, name)
    end
    return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
    """
)


@cache
def worker_name() -> str:
    """Return this process's name, unique so that no process inherits a dead one's reservations."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


# A forked child needs its own name.
os.register_at_fork(after_in_child=worker_name.cache_clear)


@lru_cache(maxsize=1024)
def notes_key(worker: str, shard: int) -> str:
    """Return the Redis key of a worker's notes in a shard."""
    return money_key(NOTES + worker, shard)


def send_heartbeat(worker: str) -> None:
    """Renew a worker's lease in each shard, also if one is down. Raises RedisError."""
    ask_each(lambda shard: _BEAT([WORKERS[shard]], [worker]))


def expire_lease(worker: str) -> None:
    """Let the sweeper take over a worker's reservations at once. Raises RedisError."""
    ask_each(lambda shard: client().zadd(WORKERS[shard], {worker: 0}))


def find_expired_workers(shard: int) -> list[str]:
    """Return the workers with an expired lease in a shard. Raises RedisError."""
    return [str(name) for name in _DEAD([WORKERS[shard]], [str(LEASE_SECONDS)])]


def is_expired(worker: str, shard: int) -> bool:
    """Return whether a worker's lease in a shard has expired. Raises RedisError."""
    return worker in find_expired_workers(shard)


def remove_worker(worker: str, shard: int) -> bool:
    """Remove a dead worker from a shard once all its notes there are released; return whether it was removed.

    Raises RedisError.
    """
    return bool(_FORGET([notes_key(worker, shard), WORKERS[shard]], [worker]))


class StoreClock:
    """Watches a shard's clock: if it is set forward, every living worker looks dead."""

    def __init__(self, read_time: Callable[[], float] = lambda: store_time(0)) -> None:
        self._read_time = read_time
        self._ahead: float | None = None

    def was_set(self) -> bool:
        """Return whether it was set since the last check. Raises RedisError."""
        ahead = self._read_time() - time.monotonic()
        before, self._ahead = self._ahead, ahead
        return before is not None and abs(ahead - before) > MAX_DRIFT


class StoreClocks:
    """Watches the clocks of all shards."""

    def __init__(self) -> None:
        self._clocks = [StoreClock(partial(store_time, shard)) for shard in SHARDS]

    def was_set(self) -> bool:
        """Return whether any was set since the last check. Raises RedisError."""
        looks = [clock.was_set() for clock in self._clocks]
        return any(looks)


def store_time(shard: int = 0) -> float:
    """Return a shard's own time in seconds, which all hosts share. Raises RedisError."""
    seconds, microseconds = server_of_shard(shard).time()
    return float(seconds) + float(microseconds) / 1e6
