"""Redis/Valkey client of this process, also of a primary behind sentinels; Lua scripts sent by digest; and the names of
keys, with their shards.

In a cluster, the keys of one script share a hash tag, and so a slot. Data of admission and settlement is sharded by
organization: all of an organization's is in one shard (docs/adr/0217). A single server has one shard, and keys without
tags.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha1
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar, cast
from uuid import UUID
from zlib import crc32

from django.conf import settings
from django_redis import get_redis_connection
from gevent.monkey import is_module_patched
from redis import Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.sentinel import Sentinel, SentinelConnectionPool

from apps.kernel.ids import random_number
from apps.kernel.store_urls import is_cluster_url, read_sentinel_url, sentinel_credentials
from apps.kernel.valkey.redis_cluster import Cluster, ClusterMultiplexer
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer

Item = TypeVar("Item")

_ON_CLUSTER: Final = is_cluster_url(settings.REDIS_URL)
# The number of shards, and their numbers.
SHARD_COUNT: Final[int] = settings.VALKEY_SHARDS
SHARDS: Final = range(SHARD_COUNT)


def _spread_tags(count: int) -> tuple[str, ...]:
    """Return a tag for each shard, with evenly spread slots: primaries usually have one range of slots each."""
    if count == 1:
        return ("gateway",)
    tags = []
    for shard in range(count):
        of_share = range(shard * REDIS_CLUSTER_HASH_SLOTS // count, (shard + 1) * REDIS_CLUSTER_HASH_SLOTS // count)
        salt = 0
        while key_slot(f"shard-{shard}-{salt}".encode()) not in of_share:
            salt += 1
        tags.append(f"shard-{shard}-{salt}")
    return tuple(tags)


_PREFIXES: Final = tuple(f"{{{tag}}}:" if _ON_CLUSTER else "" for tag in _spread_tags(SHARD_COUNT))
_SHARD_OF_PREFIX: Final = {prefix: shard for shard, prefix in enumerate(_PREFIXES)}


def tagged_key(tag: str, name: str) -> str:
    """Return the key of a name; in a cluster all names of one tag are in one slot. A tag has no braces."""
    return f"{{{tag}}}:{name}" if _ON_CLUSTER else name


def shard_of(organization_id: UUID) -> int:
    """Return an organization's shard, which is constant for a given number of shards."""
    return 0 if SHARD_COUNT == 1 else crc32(organization_id.bytes) % SHARD_COUNT


def money_key(name: str, shard: int) -> str:
    """Return the key of admission and settlement data in a shard: balances, notes, rates, the outbox.

    A reservation changes several of them atomically.
    """
    return _PREFIXES[shard] + name


def money_keys(name: str) -> tuple[str, ...]:
    """Return the keys of data that each shard has, by shard."""
    return tuple(prefix + name for prefix in _PREFIXES)


def money_pattern(name: str) -> str:
    """Return the pattern of names with a prefix in any shard."""
    return f"{'{*}:' if _ON_CLUSTER else ''}{name}*"


def shard_of_key(key: str) -> int:
    """Return the shard of such a key. Raises ValueError for any other key."""
    if SHARD_COUNT == 1:
        return 0
    shard = _SHARD_OF_PREFIX.get(key[: key.find(":") + 1])
    if shard is None:
        raise ValueError(f"{key} is in no shard; VALKEY_SHARDS is {SHARD_COUNT}, and must be the same everywhere")
    return shard


def by_shard(items: Iterable[Item], key_of: Callable[[Item], str]) -> dict[int, list[Item]]:
    """Group items by the shard of their keys, because a script works in one shard."""
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(shard_of_key(key_of(item)), []).append(item)
    return groups


def lua_key(name: str) -> str:
    """Return a Lua expression for a key in the shard of the script's first key."""
    return f"(string.match(KEYS[1], '^{{[^}}]*}}:') .. '{name}')" if _ON_CLUSTER else f"'{name}'"


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


def unanswered() -> int:
    """Return how many small commands of this process the store has not answered yet."""
    return _multiplexer().unanswered


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
