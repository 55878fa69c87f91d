"""Noticing that the client has left, in every phase: before the first byte, between chunks, and for plain requests.

Watches the client's socket while the gateway waits for a provider and interrupts that wait, which closes the provider's
socket on the way out. Knows sockets and greenlets. Must never know what is being waited for.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

import gevent
from greenlet import getcurrent, greenlet

from apps.kernel.errors import ClientGone


class Departure:
    """Watches one client. Without a socket (another server, a test client) it never interrupts.

    The watch begins with the first wait and goes on until `close`: to begin it anew for each chunk would cost more than
    the chunk.
    """

    def __init__(self, client: socket.socket | None) -> None:
        self._client = client
        self._gone = False
        self._waiting: list[greenlet] = []
        self._watcher: Any = None

    def interrupts(self) -> Departure:
        """Within this block a wait ends with ClientGone when the client closes its side."""
        return self

    def __enter__(self) -> None:
        if self._client is None:
            return
        if self._gone:
            raise ClientGone("The client closed the connection")
        if self._watcher is None:
            self._watcher = gevent.get_hub().loop.io(self._client.fileno(), 1)
            self._watcher.start(self._look)
        self._waiting.append(getcurrent())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._waiting.remove(getcurrent())

    def close(self) -> None:
        """End the watch."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        self._client = None

    def _look(self) -> None:
        self._watcher.stop()
        # More bytes of the client's are a pipelined request, which can wait.
        if not _closed(self._client):
            return
        self._gone = True
        for waiting in list(self._waiting):
            waiting.throw(ClientGone("The client closed the connection"))


def _closed(client: socket.socket | None) -> bool:
    """Return whether a readable socket is readable because its other side is gone."""
    if client is None:
        return False
    timeout = client.gettimeout()
    client.settimeout(0.0)
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        client.settimeout(timeout)
