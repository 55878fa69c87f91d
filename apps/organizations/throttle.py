"""How often one may try to get in: so many times in any minute, per address and per account.

Knows counts and windows, kept in Redis. Must never know whether a try succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import structlog
from redis.exceptions import RedisError

from apps.kernel.errors import RateLimited
from apps.kernel.ids import new_id
from apps.kernel.redis import LuaScript

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` tries in any `seconds`."""

    name: str
    count: int
    seconds: int = 60


SIGN_IN_PER_ACCOUNT = Rate("sign-in:account", 10)
SIGN_IN_PER_ADDRESS = Rate("sign-in:address", 60)
SIGN_UP_PER_ACCOUNT = Rate("sign-up:account", 5)
SIGN_UP_PER_ADDRESS = Rate("sign-up:address", 10)

# Returns the milliseconds to wait; 0 when every rate allows the try, which then counts against all of them.
_TRY = LuaScript(
    """
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local wait = 0
    for i, key in ipairs(KEYS) do
      local count, window = tonumber(ARGV[i * 2]), tonumber(ARGV[i * 2 + 1])
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
      -- Tries of the future: the clock was set back since. They count from now on, and not for as long as that.
      for _, one in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf')) do
        redis.call('ZADD', key, now, one)
      end
      if redis.call('ZCARD', key) >= count then
        local oldest = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
        wait = math.max(wait, oldest[2] + window - now)
      end
    end
    if wait == 0 then
      for i, key in ipairs(KEYS) do
        redis.call('ZADD', key, now, ARGV[1])
        redis.call('PEXPIRE', key, ARGV[i * 2 + 1])
      end
    end
    return wait
    """
)


def count_try(*claims: tuple[Rate, str]) -> None:
    """Count a try against each rate and whom it is about. Raises RateLimited; a refused try is not counted.

    Without Redis nothing can be counted, and people can still sign in.
    """
    keys = [f"throttle:{rate.name}:{sha256(subject.encode()).hexdigest()}" for rate, subject in claims]
    bounds = [number for rate, _ in claims for number in (rate.count, rate.seconds * 1000)]
    try:
        wait_ms = int(_TRY(keys, [str(new_id()), *bounds]))
    except RedisError as error:
        log.warning("throttle.not_counted", error=type(error).__name__)
        return
    if wait_ms:
        raise RateLimited("Too many attempts; try again later", retry_after=wait_ms / 1000)
