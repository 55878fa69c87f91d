"""Redis/Valkey client of this process, and Lua scripts sent by digest.

Knows how to reach the store within its time budget. Must never know what is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha1
from typing import Any, NamedTuple, cast

from django_redis import get_redis_connection
from gevent.monkey import is_module_patched
from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from apps.kernel.redis_cluster import Cluster
from apps.kernel.redis_cluster_multiplexer import ClusterMultiplexer
from apps.kernel.redis_multiplexer import RedisMultiplexer
from apps.kernel.redis_sentinel import follows_failover
from apps.kernel.store_keys import money_key, money_keys

# Of all scripts there are.
_SOURCES: list[str] = []


@cache
def client() -> Redis:
    """Return the process's client; texts come back as `str`.

    Commands raise `redis.exceptions.RedisError` when the store is away or past its time budget.
    """
    return cast(Redis, get_redis_connection("store"))


@cache
def cache_client() -> Redis:
    """Return the process's client of the store that CACHE_URL names; texts come back as `str`.

    Commands raise `redis.exceptions.RedisError` when the store is away or past its time budget.
    """
    return cast(Redis, get_redis_connection("cache_store"))


@cache
def _multiplexer() -> RedisMultiplexer | ClusterMultiplexer:
    known: object = client()
    if isinstance(known, Cluster):
        return ClusterMultiplexer(known, known.socket_timeout, _SOURCES)
    pool = client().connection_pool
    return RedisMultiplexer.of_pool(
        pool, pool.connection_kwargs["socket_timeout"], _SOURCES, follows_failover=follows_failover(client())
    )


class ServerState(NamedTuple):
    """What changes when data is lost: which runs of which servers answer, and how many keys they have evicted."""

    run: str
    evicted_keys: int


def read_server_state() -> ServerState:
    """Return what the servers that have shards say of themselves; nothing of one that does not let us ask.

    Raises RedisError.
    """
    runs, evicted = set(), 0
    for asked in servers_of_money():
        try:
            server, stats = asked.info("server"), asked.info("stats")
        except ResponseError:
            # Some who offer Valkey refuse the command.
            continue
        runs.add(str(server.get("run_id", "")))
        evicted += int(stats.get("evicted_keys", 0))
    return ServerState(" ".join(sorted(runs)), evicted)


def server_of_shard(shard: int) -> Any:
    """Return a client of the server that keeps what admission and settlement touch in a shard, and whose clock is the
    one that they go by there. Raises RedisError."""
    known: Any = client()
    return known.server_of(money_key("", shard)) if isinstance(known, Cluster) else known


def servers_of_money() -> list[Any]:
    """Return a client of each server that has any of the shards. Raises RedisError."""
    known: Any = client()
    if not isinstance(known, Cluster):
        return [known]
    return known.servers_of(money_keys(""))


def servers() -> list[Any]:
    """Return a client of each server that takes writes: one, or all primaries of a cluster. Raises RedisError."""
    return _servers_of(client())


def cache_servers() -> list[Any]:
    """Return a client of each server that keeps the cache. Raises RedisError."""
    return _servers_of(cache_client())


def _servers_of(known: Any) -> list[Any]:
    return known.primaries() if isinstance(known, Cluster) else [known]


def flush() -> None:
    """Wait until the store has answered all that this process told it so far. Raises RedisError."""
    if is_module_patched("socket"):
        _multiplexer().execute("PING")


class LuaScript:
    """An atomic script, sent by its digest and loaded on first use or after the store was restarted."""

    def __init__(self, source: str, connect: Callable[[], Redis] = client) -> None:
        """Take the script, and the client of the store that it runs in; batched and unawaited runs are `client`'s."""
        self._source, self._connect = source, connect
        if connect is client:
            _SOURCES.append(source)
        self._digest = sha1(source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: list[str], args: list[str | int | bytes]) -> Any:
        """Run the script in one round trip. Raises RedisError."""
        return self._run(self._connect().execute_command, keys, args)

    def run_batched(self, keys: list[str], args: list[str | int | bytes]) -> Any:
        """Run the script in a round trip shared with whatever else the process asks just now. Raises RedisError.

        When the connection is lost on the way it may run twice. Where sockets do not switch greenlets it runs alone.
        """
        return self._run(
            _multiplexer().execute if is_module_patched("socket") else client().execute_command, keys, args
        )

    def send_nowait(
        self, keys: list[str], args: list[str | int | bytes], failed: Callable[[RedisError], object]
    ) -> None:
        """Send the script off; once this returns it runs even if this process dies. Raises RedisError.

        `failed` is called later by the event loop, and must not wait, when it may not have run. Where sockets do not
        switch greenlets it has run when this returns.
        """
        if is_module_patched("socket"):
            _multiplexer().send_nowait(("EVALSHA", self._digest, len(keys), *keys, *args), failed)
        else:
            self(keys, args)

    def _run(self, execute: Any, keys: list[str], args: list[str | int | bytes]) -> Any:
        try:
            return execute("EVALSHA", self._digest, len(keys), *keys, *args)
        except NoScriptError:
            return execute("EVAL", self._source, len(keys), *keys, *args)
