"""How the fleet's Valkey is arranged: one primary with a replica, the primary killed and started again with its data.

Knows servers of Valkey. Must never know who uses them. Another arrangement is another class with the same four names:
`url` and `settings` that nodes are given, `lose_primary` and `close`.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from gateway_project.embedded.child_process import spawn
from gateway_project.embedded.programs import find_valkey
from tests.stack.product import eventually, free_port


class PrimaryWithReplica:
    """One primary that writes each command to its file before it answers, and a replica that follows it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.settings = {"REDIS_URL": self.url, "VALKEY_SYNC": "always"}
        self._primary = self._start("primary", self._port)
        self._replica = self._start("replica", free_port(), "--replicaof", "127.0.0.1", str(self._port))

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


def _answers(port: int) -> bool:
    with suppress(RedisError), Redis(port=port, socket_timeout=1) as store:
        return bool(store.ping())
    return False
