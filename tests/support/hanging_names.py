"""A replacement for the C library's name service: some names hang until released, others resolve to this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest

from apps.kernel.concurrency import name_lookup

# A name that begins like this has servers that never answer.
HANGING = "tar"


class HangingNames:
    """A name service that native threads call, as they call the C library; it remembers the names asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hanging: list[str] = []
        self._read, self._write = os.pipe()

    def __call__(self, host: str, port: int, type: int = 0) -> list[Any]:
        """Return this machine's address, for a hanging name once it is released."""
        self.asked.append(host)
        if host.startswith(HANGING):
            self.hanging.append(host)
            # Blocks the thread: it ends when the other side is closed.
            os.read(self._read, 1)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    def release(self) -> None:
        """Answer all that hang, and those that follow."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    @property
    def is_released(self) -> bool:
        """Whether nothing hangs any more."""
        return self._write < 0


def wait_until(look: Callable[[], Any]) -> None:
    """Let the event loop go on until `look` finds something true; fail after a minute."""
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        gevent.sleep(0.005)


@contextmanager
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingNames]:
    """Have this service asked within the block, by pools that are as new."""
    names = HangingNames()
    monkeypatch.setattr(name_lookup, "_getaddrinfo", names)
    try:
        yield names
    finally:
        names.release()
