"""Multiplexer of a cluster: a shared connection to each primary; a script is sent to the owner of its first key.

It follows moved slots, and refreshes the slot map when a primary is lost. As with one server, only repeatable commands
may be sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import gevent
import structlog
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.kernel.valkey.redis_cluster import Cluster
from apps.kernel.valkey.redis_multiplexer import RedisMultiplexer

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
        """Return the answer to a script, or to a command without keys after all nodes have answered it.

        Raises RedisError if it is refused, its node is down, or it takes too long.
        """
        if arguments[0] not in ("EVAL", "EVALSHA"):
            return [wire.execute(*arguments) for wire in list(self._wires.values())]
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
