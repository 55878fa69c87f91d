"""Green socket: sends on a gevent socket and waits until one is readable, at less cost than gevent's own calls."""

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
_READ: Final = 1  # libev's constant.


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
