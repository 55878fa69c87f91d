"""A primary of Valkey with a replica, watched by three sentinels, made of the embedded program."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from gateway_project.embedded.child_process import spawn
from gateway_project.embedded.programs import find_valkey
from tests.stack.product import eventually, free_port
from tests.support.valkey_tls import Tls

# The variable that has the fleet run on sentinels.
ON_SENTINELS: Final = "GATEWAY_TESTS_ON_SENTINELS"
# The name by which the sentinels know the primary; milliseconds after which they take a silent one for dead.
SERVICE: Final = "gateway"
DOWN_AFTER: Final = 1_000
_SENTINELS, _QUORUM = 3, 2


class ValkeySentinels:
    """Two servers and their sentinels; each command is in a server's file before it answers. `url` names all three.

    With `tls` all of them speak it, and nothing else.
    """

    def __init__(self, folder: Path, tls: Tls | None = None) -> None:
        self._folder, self._tls = folder, tls
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers = [free_port(), free_port()]
        self.sentinels = [free_port() for _ in range(_SENTINELS)]
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        self.url = f"{'rediss' if tls else 'redis'}+sentinel://{hosts}/0?service={SERVICE}"
        try:
            first, second = self.servers
            self._start_server(first)
            self._start_server(second, "--replicaof", "127.0.0.1", str(first))
            for port in self.sentinels:
                self._start_sentinel(port, first)
            eventually(self.is_whole)
        except BaseException:
            self.close()
            raise

    def primary(self) -> int:
        """Return the port of the primary, as most of the sentinels say. Raises LookupError."""
        said = []
        for port in self.sentinels:
            with suppress(RedisError), self._asked(port) as sentinel:
                told: Any = sentinel.sentinel_get_master_addr_by_name(SERVICE)
                said.append(int(told[1]))
        for port in self.servers:
            if said.count(port) >= _QUORUM:
                return port
        raise LookupError("the sentinels do not agree on a primary")

    def is_whole(self) -> bool:
        """Tell whether there is a primary whose replica follows it, and every sentinel knows the replica and others."""
        with suppress(RedisError, LookupError):
            with self._asked(self.primary()) as server:
                role: Any = server.role()
            if role[0] != "master" or len(role[2]) != 1:
                return False
            for port in self.sentinels:
                with self._asked(port) as sentinel:
                    told: Any = sentinel.sentinel_master(SERVICE)
                if (int(told["num-slaves"]), int(told["num-other-sentinels"])) != (1, _SENTINELS - 1):
                    return False
            return True
        return False

    def has_successor(self, lost: int) -> bool:
        """Tell whether another server than the one on a port is the primary, and says so itself."""
        with suppress(RedisError, LookupError):
            port = self.primary()
            if port != lost:
                with self._asked(port) as server:
                    role: Any = server.role()
                return bool(role[0] == "master")
        return False

    def kill(self, port: int) -> None:
        """Kill a server (SIGKILL)."""
        self._processes[port].kill()
        self._processes[port].wait(60)

    def start(self, port: int) -> None:
        """Start a server that was killed, on its files; the sentinels make it a replica."""
        self._start_server(port)

    def close(self) -> None:
        """End all of them."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(60)

    def _start_server(self, port: int, *words: str) -> None:
        folder = self._made(port)
        kept = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction"]
        quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        where = self._tls.words(port) if self._tls else ["--port", str(port)]
        self._spawn(port, "--bind", "127.0.0.1", *where, "--dir", str(folder), *kept, *quick, *words)

    def _start_sentinel(self, port: int, primary: int) -> None:
        # Sentinels write what they learn into their file.
        file = self._made(port) / "sentinel.conf"
        where = " ".join(self._tls.words(port) if self._tls else ["--port", str(port)])
        lines = (
            "bind 127.0.0.1",
            *where.removeprefix("--").split(" --"),
            f"dir {file.parent}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 5000",
        )
        file.write_text("\n".join(lines) + "\n", "utf-8")
        self._spawn(port, str(file), "--sentinel")

    def _spawn(self, port: int, *words: str) -> None:
        command = [str(self._tls.program if self._tls else find_valkey()), *words]
        self._processes[port] = spawn(command, output=subprocess.DEVNULL, env={}, orphan_signal=signal.SIGKILL)
        eventually(lambda: self._answers(port))

    def _made(self, port: int) -> Path:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _asked(self, port: int) -> Redis:
        tls = self._tls.client if self._tls else {}
        return Redis(port=port, socket_timeout=2, decode_responses=True, **tls)

    def _answers(self, port: int) -> bool:
        with suppress(RedisError), self._asked(port) as one:
            return bool(one.ping())
        return False


def lose_primary(servers: ValkeySentinels, seconds: float = 0) -> float:
    """Kill the primary, wait for its successor, and start it again so many seconds later as a replica.

    Return the seconds that the failover took.
    """
    lost, began = servers.primary(), time.monotonic()
    servers.kill(lost)
    eventually(lambda: servers.has_successor(lost), patience=60)
    took = time.monotonic() - began
    time.sleep(seconds)
    servers.start(lost)
    eventually(servers.is_whole, patience=60)
    return took
