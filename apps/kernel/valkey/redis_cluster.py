"""Client of a Valkey Cluster: addresses by URL, one client per process and purpose, uniform errors, and a multiplexer.

`redis` decides which keys belong together. The multiplexer shares a connection to each primary; a script is sent
to the owner of its first key. It follows moved slots, and refreshes the slot map when a primary is lost. As with one
server, only repeatable commands may be sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

import gevent
import structlog
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from apps.kernel.store_urls import read_hosts, split_url
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer

# Retries of a command after the slot map was refreshed.
_TRIES: Final = 2

_Words = ParamSpec("_Words")
_Answer = TypeVar("_Answer")


def connect(url: str, **options: Any) -> Cluster:
    """Return a client of the cluster. Raises ConnectionError if no host answers as a cluster node."""
    parts = split_url(url)
    hosts = read_hosts(url)
    credentials = parts.credentials
    # The options beside the first host's address apply to all.
    scheme = parts.scheme.partition("+")[0]
    single = f"{scheme}://{credentials}{'@' if credentials else ''}{_PLACEHOLDER}/?{parts.query}"
    parsed: dict[str, Any] = dict(parse_url(single))  # type: ignore[no-untyped-call] # the library's
    for name in ("host", "port", "db", "connection_class"):
        parsed.pop(name, None)
    if scheme == "rediss":
        parsed["ssl"] = True
    nodes = [ClusterNode(host, port) for host, port in hosts]  # type: ignore[no-untyped-call] # the library's
    try:
        return Cluster(
            startup_nodes=nodes,
            # The remaining slots are served while a part of the cluster is down.
            require_full_coverage=False,
            # Use the configured nodes at startup, even if the cluster announces other addresses.
            dynamic_startup_nodes=False,
            reinitialize_steps=1,
            retry=Retry(NoBackoff(), _TRIES),
            **parsed,
            **options,
        )
    except RedisClusterException as error:
        raise RedisConnectionError(f"No node of the cluster answers ({type(error).__name__})") from error


_PLACEHOLDER: Final = "one-of-them:6379"


def _told_as_away(ask: Callable[_Words, _Answer]) -> Callable[_Words, _Answer]:
    """Turn the library's error for an unserved key into the error of a store that is down."""

    @wraps(ask)
    def asked(*args: _Words.args, **kwargs: _Words.kwargs) -> _Answer:
        try:
            return ask(*args, **kwargs)
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error

    return asked


class Cluster(RedisCluster):
    """The library's client with `RedisError`s only, and with multi-key reads split by slot."""

    @property
    def socket_timeout(self) -> float:
        """Timeout of an answer in seconds."""
        return float(self.nodes_manager.connection_kwargs["socket_timeout"])

    execute_command = _told_as_away(RedisCluster.execute_command)

    def pipeline(self, transaction: bool | None = None, shard_hint: str | None = None) -> Any:
        """Return a pipeline; a transaction's keys must be of one slot."""
        pipe = super().pipeline(transaction, shard_hint)  # type: ignore[no-untyped-call] # the library's
        pipe.execute = _told_as_away(pipe.execute)
        return pipe

    def server_of(self, key: str) -> Any:
        """Return a client of the primary with a key. Raises RedisError."""
        return _AskedServer(self, _told_as_away(self.get_node_from_key)(key))

    def servers_of(self, keys: Iterable[str]) -> list[Any]:
        """Return a client of each primary with any of the keys. Raises RedisError."""
        find = _told_as_away(self.get_node_from_key)
        nodes = {node.name: node for node in map(find, keys)}
        return [_AskedServer(self, node) for node in nodes.values()]

    def primaries(self) -> list[Any]:
        """Return a client of each primary."""
        return [_AskedServer(self, node) for node in self.get_primaries()]  # type: ignore[no-untyped-call] # the library's

    def keys(self, pattern: Any = "*", **options: Any) -> Any:
        """Return the matching keys of all primaries. Raises RedisError."""
        return super().keys(pattern, target_nodes=self.PRIMARIES, **options)

    def mget(self, keys: Any, *args: Any) -> Any:
        """Return the values of keys in any slots, atomically per slot. Raises RedisError."""
        return self.mget_nonatomic(keys, *args)


class _AskedServer:
    """One node, for commands without keys. If it is down, the cluster's client finds the new owner of its slots."""

    def __init__(self, cluster: Cluster, node: ClusterNode) -> None:
        self._cluster, self._node = cluster, node
        self.name: str = node.name

    def ping(self) -> Any:
        """Return whether it answers. Raises RedisError."""
        return self._cluster.ping(target_nodes=self._node)

    def time(self) -> Any:
        """Return its clock: seconds and microseconds. Raises RedisError."""
        return self._cluster.time(target_nodes=self._node)

    def info(self, *sections: str) -> Any:
        """Return its INFO. Raises RedisError."""
        return self._cluster.info(*sections, target_nodes=self._node)

    def config_get(self, *patterns: str) -> Any:
        """Return its configuration. Raises RedisError."""
        return self._cluster.config_get(*patterns, target_nodes=self._node)


class ClusterConnectionFactory:
    """Creates django-redis' clients of a cluster: one per process and purpose, although its cache asks in every
    thread."""

    _clients: dict[tuple[str, bool], Cluster] = {}
    _lock = Lock()

    def __init__(self, options: dict[str, Any]) -> None:
        given = dict(options.get("CONNECTION_POOL_KWARGS", {}))
        # The cluster's client has its own retries.
        given.pop("retry", None)
        self._options = given

    def connect(self, url: str) -> Cluster:
        """Return the client. Raises RedisError."""
        name = url, bool(self._options.get("decode_responses"))
        with self._lock:
            if name not in self._clients:
                self._clients[name] = connect(url, **self._options)
            return self._clients[name]

    def disconnect(self, connection: Cluster) -> None:
        """Close the connections; they are reopened on use."""
        connection.disconnect_connection_pools()  # type: ignore[no-untyped-call] # the library's

    @classmethod
    def begin_anew(cls) -> None:
        """Reset in a forked child."""
        cls._clients.clear()
        cls._lock = Lock()


os.register_at_fork(after_in_child=ClusterConnectionFactory.begin_anew)


log = structlog.get_logger(__name__)

# Redirections per command; seconds between refreshes of the slot map, and between retries of a command whose keys are
# being moved.
_HOPS: Final = 5
_LOOK_PAUSE: Final = 0.1
_TRY_PAUSE: Final = 0.02
# Positions of the number of keys and of the first key in EVAL and EVALSHA.
_COUNT, _FIRST_KEY = 2, 3
# Errors of a node that temporarily cannot serve a key.
_AWAY: Final = ("CLUSTERDOWN", "MASTERDOWN", "LOADING", "READONLY")


class ClusterMultiplexer:
    """The shared connections. A command may take `budget` seconds at each node."""

    def __init__(self, cluster: Cluster, budget: float, scripts: Sequence[str] = ()) -> None:
        """`scripts` are loaded on each connection, as `RedisMultiplexer` does."""
        self._cluster = cluster
        self._budget = budget
        self._scripts = scripts
        self._wires: dict[str, RedisMultiplexer] = {}
        self._looked_at = 0.0

    def execute(self, *arguments: str | bytes | int) -> Any:
        """Return the answer to a script. Raises RedisError if it is refused, its node is down, or it takes too long."""
        slot = _slot_of(arguments)
        until = time.monotonic() + self._budget
        for _ in range(_HOPS):
            node = self._node_of(slot)
            try:
                return self._wire_to(node).execute(*arguments)
            except RedisTimeoutError:
                gevent.spawn(self._look, node)
                raise
            except RedisConnectionError:
                self._look(node)
                if self._node_of(slot) == node:
                    raise
            except ResponseError as refusal:
                word = str(refusal).partition(" ")[0]
                if word == "MOVED":
                    self._follow(refusal)
                elif word == "ASK":
                    # While a slot is migrating: the library handles that.
                    return self._cluster.execute_command(*arguments)
                elif word == "TRYAGAIN" and time.monotonic() < until:
                    gevent.sleep(_TRY_PAUSE)
                elif word in _AWAY or word == "TRYAGAIN":
                    self._look(node)
                    if self._node_of(slot) == node:
                        raise RedisConnectionError(f"The cluster cannot serve this key now ({word})") from refusal
                else:
                    raise
        raise RedisConnectionError("The cluster led from node to node")

    def send_nowait(self, arguments: Sequence[str | bytes | int], failed: Callable[[RedisError], object]) -> None:
        """Send a script, as `RedisMultiplexer` does; a redirected one has failed."""
        node = self._node_of(_slot_of(arguments))

        def heard(error: RedisError) -> None:
            # Called by the event loop, which must not wait.
            gevent.spawn(self._learn, error, node)
            failed(error)

        try:
            self._wire_to(node).send_nowait(arguments, heard)
        except RedisError as error:
            gevent.spawn(self._learn, error, node)
            raise

    @property
    def unanswered(self) -> int:
        """Small commands that the slowest node has not answered yet."""
        return max((wire.unanswered for wire in self._wires.values()), default=0)

    def flush(self) -> None:
        """Wait until all nodes have answered every command sent so far. Raises RedisError."""
        for wire in list(self._wires.values()):
            wire.flush()

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def _node_of(self, slot: int) -> ClusterNode:
        # The dictionary is replaced as a whole, so reading it needs no lock.
        nodes = self._cluster.nodes_manager.slots_cache.get(slot)
        if not nodes:
            self._look(None)
            nodes = self._cluster.nodes_manager.slots_cache.get(slot)
        if not nodes:
            raise RedisConnectionError("No node of the cluster serves this key")
        node: ClusterNode = nodes[0]
        return node

    def _wire_to(self, node: ClusterNode) -> RedisMultiplexer:
        wire = self._wires.get(node.name)
        if wire is None:
            pool = self._cluster.get_redis_connection(node).connection_pool
            wire = self._wires.setdefault(node.name, RedisMultiplexer.of_pool(pool, self._budget, self._scripts))
        return wire

    def _learn(self, error: RedisError, node: ClusterNode) -> None:
        if isinstance(error, ResponseError) and str(error).startswith("MOVED "):
            self._follow(error)
        else:
            self._look(node)

    def _follow(self, refusal: ResponseError) -> None:
        """Record a slot's new owner, and refresh the slot map."""
        self._cluster.nodes_manager.move_slot(MovedError(str(refusal).removeprefix("MOVED ")))
        gevent.spawn(self._look, None)

    def _look(self, failed: ClusterNode | None) -> None:
        """Refresh the slot map, unless that was done a moment ago; keep the old one if no node answers."""
        now = time.monotonic()
        if now < self._looked_at + _LOOK_PAUSE:
            return
        self._looked_at = now
        manager = self._cluster.nodes_manager
        try:
            manager.initialize(last_failed_node_name=None if failed is None else failed.name)
        except (RedisClusterException, RedisError) as error:
            log.warning("cluster.map_not_read", error=type(error).__name__)
            return
        for name in self._wires.keys() - manager.nodes_cache.keys():
            self._wires.pop(name).close()


def _slot_of(arguments: Sequence[str | bytes | int]) -> int:
    if not int(arguments[_COUNT]):
        raise ValueError("a script without keys has no place in a cluster")
    key = arguments[_FIRST_KEY]
    slot: int = key_slot(key if isinstance(key, bytes) else str(key).encode())
    return slot
