"""An embedded Valkey: reachable on a unix socket only; an acknowledged write survives the death of any process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from gateway_project.embedded import aof_fsync, programs
from gateway_project.embedded.child_process import socket_folder, spawn, stop_leftover
from gateway_project.embedded.programs import StoreError

# Bytes that organizations may keep in the cache, unless CACHE_BYTES says otherwise.
DEFAULT_CACHE_BYTES: Final = 512 * 1024 * 1024
# Valkey's `appendfsync` by the value of VALKEY_SYNC: when written data reaches the disk. Never
# `everysec`: then a write may be acknowledged before it has left the process.
_SYNC = {"second": "no", "always": "always"}
_APPENDED = "appendonlydir"


class Valkey:
    """One server under a home. `start` it, wait until it `answers`, reach it at `url`."""

    name = "valkey"
    title = "Valkey"
    url_variable = "REDIS_URL"
    stands_for: tuple[str, ...] = ("REDIS_URL",)
    stop_signal, force_signal = signal.SIGTERM, signal.SIGKILL

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        """Choose the places. Raises StoreError where Valkey cannot be run, or VALKEY_SYNC says what it cannot do."""
        self._durable = durable
        self._sync = os.environ.get("VALKEY_SYNC") or "second"
        if self._sync not in _SYNC:
            raise StoreError(f"VALKEY_SYNC is {self._sync!r}: make it {' or '.join(_SYNC)}")
        self._program = programs.find_valkey()
        self.data = home / self.name
        self._pid_file = home / "run" / f"{self.name}.pid"
        socket_name = f"{self.name}.sock"
        folder = socket_folder(home / "run", socket_name, home / "run" / f"{self.name}-socket", None)
        self._socket = folder / socket_name
        self.url = f"unix://{quote(str(self._socket))}?db=0"

    def start(self, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start the server, after ending a leftover one. Raises OSError."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        stop_leftover(self._pid_file, self._program.name, self.data, self.stop_signal)
        settings: dict[str, str | Path] = {
            "port": "0",
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "dir": self.data,
            "pidfile": self._pid_file,
            "set-proc-title": "no",  # Its arguments tell whose it is.
            "save": "",
            **self._keeping(),
        }
        return spawn(
            [self._program, *(word for name, value in settings.items() for word in (f"--{name}", value))],
            output=output,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            orphan_signal=self.stop_signal,
        )

    def _keeping(self) -> dict[str, str]:
        """Return what the server does with its data."""
        return {
            "maxmemory-policy": "noeviction",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": _SYNC[self._sync],
            "appenddirname": _APPENDED,
        }

    @property
    def flusher(self) -> Flusher | None:
        """The process beside the server that writes its data to the disk, if one is needed."""
        return Flusher(self.data / _APPENDED) if self._durable and self._sync == "second" else None

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


class CacheValkey(Valkey):
    """A second server, for what organizations cause to be kept: it evicts before it grows, and nothing outlives it."""

    name = "cache"
    title = "the cache"
    url_variable = "CACHE_URL"
    # With a Valkey of the operator's own, CACHE_URL says whether the cache is there or elsewhere.
    stands_for = ("CACHE_URL", "REDIS_URL")

    def _keeping(self) -> dict[str, str]:
        return {"maxmemory-policy": "allkeys-lru", "maxmemory": str(_cache_memory()), "appendonly": "no"}

    @property
    def flusher(self) -> None:
        """Nothing is written to the disk."""
        return None


def _cache_memory() -> int:
    """Return the bytes that the cache's server may use: the counted data, and its allocator's overhead.

    Raises StoreError.
    """
    stated = os.environ.get("CACHE_BYTES") or str(DEFAULT_CACHE_BYTES)
    if not stated.isdecimal():
        raise StoreError(f"CACHE_BYTES is {stated!r}: make it a number of bytes")
    return int(stated) * 5 // 4 + 32 * 1024 * 1024


class Flusher:
    """The program that has a server's files put on the disk. `start` it; it can be killed at any time."""

    name = "flusher"
    stop_signal, force_signal = signal.SIGTERM, signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        """Look after the files in `folder`, which need not exist yet."""
        self._folder = folder

    def start(self, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start the program. Raises OSError."""
        return spawn(
            [sys.executable, "-I", aof_fsync.__file__, self._folder],
            output=output,
            env={"LC_ALL": "C.UTF-8"},
            background=True,
        )
