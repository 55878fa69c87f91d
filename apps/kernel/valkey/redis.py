"""Redis/Valkey client of this process, also of a primary behind sentinels, and Lua scripts sent by digest."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from hashlib import sha1
from threading import Lock
from typing import Any, NamedTuple, cast

from django_redis import get_redis_connection
from gevent.monkey import is_module_patched
from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.sentinel import Sentinel, SentinelConnectionPool

from apps.kernel.ids import random_number
from apps.kernel.store_urls import read_sentinel_url, sentinel_credentials
from apps.kernel.valkey.redis_cluster import Cluster, ClusterMultiplexer
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer
from apps.kernel.valkey.store_keys import money_key, money_keys


def connect(url: str, **options: Any) -> Redis:
    """Return a client of the primary, without connecting yet. Its commands raise RedisError, also without a primary."""
    address = read_sentinel_url(url)
    timeouts = {name: value for name, value in options.items() if name in {"socket_timeout", "socket_connect_timeout"}}
    own: dict[str, Any] = {"db": address.database, **options}
    if address.username:
        own["username"] = address.username
    if address.password:
        own["password"] = address.password
    if address.tls:
        own["ssl"] = True
    sentinels: Any = Sentinel(  # type: ignore[no-untyped-call] # the library's
        address.hosts, sentinel_kwargs={**timeouts, "decode_responses": True, **sentinel_credentials(address)}
    )
    primary: Redis = sentinels.master_for(address.service, **own)
    return primary


def follows_failover(client: Redis) -> bool:
    """Return whether another server may be the primary on the client's next connection."""
    return isinstance(client.connection_pool, SentinelConnectionPool)


class SentinelConnectionFactory:
    """Creates django-redis' clients: one per process and purpose, although its cache asks in every thread."""

    _clients: dict[tuple[str, bool], Redis] = {}
    _lock = Lock()

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = dict(options.get("CONNECTION_POOL_KWARGS", {}))

    def connect(self, url: str) -> Redis:
        """Return the client, without connecting yet."""
        name = url, bool(self._options.get("decode_responses"))
        with self._lock:
            if name not in self._clients:
                self._clients[name] = connect(url, **self._options)
            return self._clients[name]

    def disconnect(self, connection: Redis) -> None:
        """Close the connections; they are reopened on use."""
        connection.connection_pool.disconnect()

    @classmethod
    def begin_anew(cls) -> None:
        """Reset in a forked child."""
        cls._clients.clear()
        cls._lock = Lock()


os.register_at_fork(after_in_child=SentinelConnectionFactory.begin_anew)


# Sources of all scripts.
_SOURCES: list[str] = []


@cache
def client() -> Redis:
    """Return the process's client; texts are returned as `str`.

    Commands raise `redis.exceptions.RedisError` if the store is down or exceeds its time budget.
    """
    return cast(Redis, get_redis_connection("store"))


@cache
def cache_client() -> Redis:
    """Return the process's client of the store in CACHE_URL; texts are returned as `str`.

    Commands raise `redis.exceptions.RedisError` if the store is down or exceeds its time budget.
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
    """A value that changes when data is lost: the run ids of the answering servers, their counts of evicted keys, and
    the names of the shards' data sets, which go with the data (`FLUSHALL`)."""

    run: str
    evicted_keys: int
    data: str = ""


def read_server_state() -> ServerState:
    """Return the state of the servers with shards, without those that refuse to report it.

    Names data sets that have no name. Raises RedisError.
    """
    runs, evicted = set(), 0
    for asked in servers_of_money():
        try:
            server, stats = asked.info("server"), asked.info("stats")
        except ResponseError:
            # Some managed services refuse the command.
            continue
        runs.add(str(server.get("run_id", "")))
        evicted += int(stats.get("evicted_keys", 0))
    names = [str(_NAME_DATA([key], [f"{random_number():016x}"])) for key in DATA_NAMES]
    return ServerState(" ".join(sorted(runs)), evicted, " ".join(names))


def server_of_shard(shard: int) -> Any:
    """Return a client of the server with the admission and settlement data of a shard; its clock applies there. Raises
    RedisError."""
    known: Any = client()
    return known.server_of(money_key("", shard)) if isinstance(known, Cluster) else known


def servers_of_money() -> list[Any]:
    """Return a client of each server with shards. Raises RedisError."""
    known: Any = client()
    if not isinstance(known, Cluster):
        return [known]
    return known.servers_of(money_keys(""))


def servers() -> list[Any]:
    """Return a client of each server that accepts writes: one, or all primaries of a cluster. Raises RedisError."""
    return _servers_of(client())


def cache_servers() -> list[Any]:
    """Return a client of each cache server. Raises RedisError."""
    return _servers_of(cache_client())


def _servers_of(known: Any) -> list[Any]:
    return known.primaries() if isinstance(known, Cluster) else [known]


def flush() -> None:
    """Wait until the store has answered everything that this process has sent. Raises RedisError."""
    if is_module_patched("socket"):
        _multiplexer().flush()


class LuaScript:
    """An atomic script, sent by its digest and loaded on first use or after a restart of the store."""

    def __init__(self, source: str, connect: Callable[[], Redis] = client) -> None:
        """Create a script for the client of a store; batched and unawaited runs always use `client`."""
        self._source, self._connect = source, connect
        if connect is client:
            _SOURCES.append(source)
        self._digest = sha1(source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: list[str], args: list[str | int | bytes]) -> Any:
        """Run the script in one round trip. Raises RedisError."""
        return self._run(self._connect().execute_command, keys, args)

    def run_batched(self, keys: list[str], args: list[str | int | bytes]) -> Any:
        """Run the script in a round trip shared with other current commands of the process. Raises RedisError.

        If the connection is lost, it may run twice. Without gevent sockets it runs alone.
        """
        return self._run(
            _multiplexer().execute if is_module_patched("socket") else client().execute_command, keys, args
        )

    def send_nowait(
        self, keys: list[str], args: list[str | int | bytes], failed: Callable[[RedisError], object]
    ) -> None:
        """Send the script; once this returns, it runs even if this process dies. Raises RedisError.

        `failed` is called later by the event loop if it may not have run, and must not wait. Without gevent sockets,
        the script has run when this returns.
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


# By shard: the name of its data set, a random text.
DATA_NAMES = money_keys("store:data")
_NAME_DATA = LuaScript(
    """
    -- KEYS: the name of the data set; ARGV: a name for one that has none
    local known = redis.call('GET', KEYS[1])
    if known then return known end
    redis.call('SET', KEYS[1], ARGV[1])
    return ARGV[1]
    """
)
