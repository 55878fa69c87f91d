"""Client of a Valkey Cluster: addresses by URL, one client per process and purpose, and uniform errors.

`store_keys` decides which keys belong together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from apps.kernel.valkey.redis_cluster_url import read_hosts, split_url

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
