"""An embedded Valkey: reachable on a unix socket only; an acknowledged write survives the death of the server.

Knows how the server is started and found again after a crash. Must never know what is kept in it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import IO
from urllib.parse import quote

from gateway_project.embedded import programs
from gateway_project.embedded.leash import end_leftover, spawn
from gateway_project.embedded.sockets import socket_folder

_SOCKET = "valkey.sock"


class Valkey:
    """One server under a home. `start` it, wait until it `answers`, reach it at `url`."""

    name = "valkey"
    title = "Valkey"
    url_variable = "REDIS_URL"
    stop_signal, force_signal = signal.SIGTERM, signal.SIGKILL

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        """Choose the places. Raises StoreError where Valkey cannot be run."""
        self._durable = durable
        self._program = programs.find_valkey()
        self.data = home / "valkey"
        self._pid_file = home / "run" / "valkey.pid"
        self._socket = socket_folder(home / "run", _SOCKET, home / "run" / "valkey-socket", None) / _SOCKET
        self.url = f"unix://{quote(str(self._socket))}?db=0"

    def start(self, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start the server, after ending a leftover one. Raises OSError."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        end_leftover(self._pid_file, self._program.name, self.data, self.stop_signal)
        settings: dict[str, str | Path] = {
            "port": "0",
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "dir": self.data,
            "pidfile": self._pid_file,
            "set-proc-title": "no",  # Its arguments tell whose it is.
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            # Not everysec: then a write may be acknowledged before it has left the process.
            "appendfsync": "always",
        }
        return spawn(
            [self._program, *(word for name, value in settings.items() for word in (f"--{name}", value))],
            output=output,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            orphan_signal=self.stop_signal,
        )

    def answers(self) -> bool:
        """Does the running server answer? While it loads its data it refuses."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
