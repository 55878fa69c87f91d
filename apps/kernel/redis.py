"""The one connection pool to Redis/Valkey of this process, and scripts by name.

Knows how to reach the store within its time budget. Must never know what is stored.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from django_redis import get_redis_connection
from redis import Redis
from redis.commands.core import Script


@cache
def client() -> Redis:
    """Return the process's client; texts come back as `str`.

    Commands raise `redis.exceptions.RedisError` when the store is away or past its time budget.
    """
    return cast(Redis, get_redis_connection("store"))


class LuaScript:
    """An atomic script, sent by its digest and loaded on first use or after the store was restarted."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._script: Script | None = None

    def __call__(self, keys: list[str], args: list[str | int | bytes]) -> Any:
        """Run the script in one round trip. Raises RedisError."""
        if self._script is None:
            self._script = client().register_script(self._source)
        return self._script(keys=keys, args=args)
