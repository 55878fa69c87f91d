"""Green socket: sends on a gevent socket and waits until one is readable, at less cost than gevent's own calls.

Pieces that are written one after the other can be gathered and leave in one system call.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final

from gevent import get_hub

# Errors of a non-blocking socket that would block; over TLS also for an incomplete record.
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Bytes of one TLS record. TLS must be given unsent data again in the same pieces, and `sendall` cuts it differently
# than `send`.
_TLS_RECORD: Final = 16_384
# libev's constants.
_READ, _WRITE = 1, 2
# Gathered bytes that are sent without waiting for more.
_MAX_GATHERED: Final = 64 * 1024


def send_all(sock: socket.socket, data: bytes, seconds: float | None = None) -> None:
    """Send all data, waiting at most so many seconds for room, None without a limit. Raises OSError."""
    sent = 0
    try:
        if not isinstance(sock, ssl.SSLSocket):
            # The common case: everything fits, and the socket below gevent's is faster.
            sent = getattr(sock, "_sock", sock).send(data)
        elif len(data) <= _TLS_RECORD:
            sent = sock.send(data)
    except WOULD_BLOCK:
        pass
    if sent < len(data):
        usual = sock.gettimeout()
        sock.settimeout(seconds)
        try:
            sock.sendall(data[sent:])
        finally:
            sock.settimeout(usual)


def watch_readable(sock: socket.socket) -> Any:
    """Return a watcher for `hub.wait` until the socket is readable or closed. Close it before the socket. Reading
    first, as gevent does, mostly fails right after a request was sent."""
    return get_hub().loop.io(sock.fileno(), _READ)


class GatheringSender:
    """Sends on one socket, for one greenlet. Gathered pieces leave with the next `send`, else when the greenlet
    waits for something: the event loop sends them before it polls for events.

    The pieces of a stream often arrive together, and a system call for each costs as much as all else that is done for
    it. Close it before the socket.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        """A send may wait so many seconds for room."""
        self._sock = sock
        self._seconds = seconds
        self._loop = get_hub().loop
        # The event loop cannot send for it: a record of TLS may have to wait.
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_scheduled = False
        # Waits for room for the rest that the event loop could not send.
        self._writable: Any = None
        self._is_lost = False

    def send(self, data: bytes) -> None:
        """Send the gathered pieces and more, waiting for room. Raises OSError."""
        if self._is_lost:
            raise ConnectionResetError("The connection was lost")
        send_all(self._sock, self._take() + data if self._pieces else data, self._seconds)

    def gather(self, data: bytes) -> None:
        """Send more, with what follows at once. Raises OSError, also for earlier pieces.

        On a connection with TLS it is sent now.
        """
        if self._is_tls:
            self.send(data)
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _MAX_GATHERED or self._is_lost:
            self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.run_callback(self._send_gathered)

    def flush(self) -> None:
        """Send the gathered pieces, waiting for room. Raises OSError."""
        if self._pieces:
            self.send(b"")

    def close(self) -> None:
        """Send the gathered pieces as far as there is room."""
        self._send_gathered()
        self._take()

    def _take(self) -> bytes:
        """Return the gathered pieces, which the event loop no longer sends."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._writable is not None:
            self._writable.close()
            self._writable, self._is_scheduled = None, False
        return data

    def _send_gathered(self) -> None:
        """Send the gathered pieces as far as there is room. Runs in the event loop, which must not wait."""
        self._is_scheduled = False
        if not self._pieces:
            return
        data = self._take()
        try:
            sent = getattr(self._sock, "_sock", self._sock).send(data)
        except WOULD_BLOCK:
            sent = 0
        except OSError:
            self._is_lost = True
            return
        if sent < len(data):
            self._pieces.append(data[sent:])
            self._size = len(data) - sent
            self._is_scheduled = True
            self._writable = self._loop.io(self._sock.fileno(), _WRITE)
            self._writable.start(self._send_gathered)
