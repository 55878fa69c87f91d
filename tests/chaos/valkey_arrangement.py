"""How the fleet's Valkey is arranged: a primary with a replica, with sentinels or without, or a cluster; and how the
primary is killed, and started again.

Another arrangement is another class with the same four names: `settings` that nodes are given, `connect`,
`lose_primary` and `close`.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from apps.kernel.valkey import redis
from apps.kernel.valkey.redis_cluster import connect
from gateway_project.embedded.child_process import spawn
from gateway_project.embedded.programs import find_valkey
from tests.stack.product import eventually, free_port
from tests.support.valkey_cluster import ON_CLUSTER, ValkeyCluster
from tests.support.valkey_sentinels import ON_SENTINELS, ValkeySentinels, lose_primary

# Keys that admission and settlement touch, of any shard.
BALANCES: Final = "{*}:balance:*"


class PrimaryWithReplica:
    """One primary that writes each command to its file before it answers, and a replica that follows it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.settings = {"REDIS_URL": self.url, "VALKEY_SYNC": "always"}
        self._primary = self._start("primary", self._port)
        self._replica = self._start("replica", free_port(), "--replicaof", "127.0.0.1", str(self._port))

    def connect(self) -> Any:
        """Return a client of the primary."""
        return Redis.from_url(self.url, decode_responses=True, socket_timeout=5)

    def lose_primary(self, seconds: float) -> None:
        """Kill the primary (SIGKILL), leave it dead for a while, and start it again on its file."""
        self._primary.kill()
        self._primary.wait(10)
        time.sleep(seconds)
        self._primary = self._start("primary", self._port)

    def close(self) -> None:
        """End both."""
        for process in (self._replica, self._primary):
            process.kill()
            process.wait(10)

    def _start(self, name: str, port: int, *words: str) -> subprocess.Popen[bytes]:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        kept = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction"]
        command = [str(find_valkey()), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), *kept, *words]
        process = spawn(command, output=subprocess.DEVNULL, env={})
        eventually(lambda: _answers(port))
        return process


class Sentinels:
    """One primary with a replica, and three sentinels that have it take over."""

    def __init__(self, folder: Path) -> None:
        self._servers = ValkeySentinels(folder)
        self.settings = {"REDIS_URL": self._servers.url, "CELERY_BROKER_URL": "", "VALKEY_SYNC": "always"}

    def connect(self) -> Any:
        """Return a client of the primary."""
        return redis.connect(self._servers.url, decode_responses=True, socket_timeout=5)

    def lose_primary(self, seconds: float) -> None:
        """Kill the primary (SIGKILL), and start it again as a replica once the other has taken over."""
        print(f"    the replica took over after {lose_primary(self._servers, seconds):.1f} s")

    def close(self) -> None:
        """End all."""
        self._servers.close()


class Cluster:
    """Three primaries with a replica each, and a server of its own for Celery's queues."""

    def __init__(self, folder: Path) -> None:
        self._nodes = ValkeyCluster(folder / "nodes", durable=True)
        try:
            self._queues = PrimaryWithReplica(folder / "queues")
        except BaseException:
            self._nodes.close()
            raise
        self.settings = {
            "REDIS_URL": self._nodes.url,
            "CELERY_BROKER_URL": self._queues.url,
            "VALKEY_SYNC": "always",
        }

    def connect(self) -> Any:
        """Return a client of the cluster."""
        return connect(self._nodes.url, decode_responses=True, socket_timeout=5)

    def lose_primary(self, seconds: float) -> None:
        """Kill the primary with most of the balances (SIGKILL), and start it again as a replica once another is
        elected."""
        balance = self._nodes.busiest_by(BALANCES)
        lost = self._nodes.primary_of(balance)
        began = time.monotonic()
        self._nodes.kill(lost)
        eventually(lambda: self._nodes.has_successor(balance, lost), patience=30)
        print(f"    a replica took over after {time.monotonic() - began:.1f} s")
        time.sleep(seconds)
        self._nodes.start(lost)
        self._nodes.wait_until_whole()

    def close(self) -> None:
        """End all."""
        self._queues.close()
        self._nodes.close()


def chosen() -> type[PrimaryWithReplica] | type[Sentinels] | type[Cluster]:
    """Return the arrangement that the environment asks for."""
    if os.environ.get(ON_SENTINELS):
        return Sentinels
    return Cluster if os.environ.get(ON_CLUSTER) else PrimaryWithReplica


def _answers(port: int) -> bool:
    with suppress(RedisError), Redis(port=port, socket_timeout=1) as store:
        return bool(store.ping())
    return False
