"""Noticing that the client has left, in every phase: before the first byte, between chunks, and for plain requests.

Watches the client's socket while the gateway waits for a provider and interrupts that wait, which closes the provider's
socket on the way out. Knows sockets and greenlets. Must never know what is being waited for.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
from greenlet import getcurrent

from apps.kernel.errors import ClientGone


class Departure:
    """Watches one client. Without a socket (another server, a test client) it never interrupts."""

    def __init__(self, client: socket.socket | None) -> None:
        self._client = client
        self._gone = False

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Within this block a wait ends with ClientGone when the client closes its side."""
        if self._client is None:
            yield
            return
        if self._gone:
            raise ClientGone("The client closed the connection")
        waiting = getcurrent()
        watcher = gevent.get_hub().loop.io(self._client.fileno(), 1)

        def look() -> None:
            if not _closed(self._client):
                # More bytes of the client's: a pipelined request, which can wait.
                watcher.stop()
                return
            self._gone = True
            waiting.throw(ClientGone("The client closed the connection"))

        watcher.start(look)
        try:
            yield
        finally:
            watcher.stop()
            watcher.close()


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
