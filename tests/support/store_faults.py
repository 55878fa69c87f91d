"""Ways in which a Valkey gives no answer, each for real: it refuses writes, hangs, or is not there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

# By the word that the gateway has for it. Out of memory is none of them: a script that begins by removing something may
# go on to write, so that reservations are made as ever.
FAULTS = ("noreplicas", "readonly", "timeout", "unreachable")


@contextmanager
def fault(kind: str, store: Redis) -> Iterator[None]:
    """Let the store do as `kind` says for as long as the block; `store` is a connection of the caller's own."""
    undo = _BEGIN[kind](store)
    try:
        yield
    finally:
        undo()


def _configured(name: str, value: str) -> Any:
    def begin(store: Redis) -> Any:
        before = store.config_get(name)[name]
        store.config_set(name, value)
        return lambda: store.config_set(name, before)

    return begin


def _replica(store: Redis) -> Any:
    """Make the store a replica of a primary that does not exist: it answers reads, and refuses to write."""
    store.execute_command("REPLICAOF", "127.0.0.1", "1")
    return lambda: store.execute_command("REPLICAOF", "NO", "ONE")


def _hang(store: Redis) -> Any:
    pid = int(store.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def _vanish(store: Redis) -> Any:
    """Refuse new connections, and end the existing ones."""
    path = str(store.config_get("unixsocket")["unixsocket"])
    away = f"{path}.away"
    os.rename(path, away)
    store.execute_command("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")
    return lambda: os.rename(away, path)


_BEGIN: dict[str, Any] = {
    "oom": _configured("maxmemory", "1"),
    "noreplicas": _configured("min-replicas-to-write", "1"),
    "readonly": _replica,
    "timeout": _hang,
    "unreachable": _vanish,
}
