"""Green socket: send on a gevent socket and wait until one is readable, cheaper than gevent's own calls.

Knows sockets and the event loop. Must never know what is sent.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Final

from gevent import get_hub

# What a socket that does not wait says when it would have to; over TLS also of what is no whole record yet.
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Bytes of one TLS record. TLS wants what it could not take again in the same pieces, which `sendall` cuts otherwise
# than one `send`.
_TLS_RECORD: Final = 16_384
_READ: Final = 1  # libev's constant.


def send_all(sock: socket.socket, data: bytes, seconds: float | None = None) -> None:
    """Send all of the data, waiting at most so many seconds for room, None for as long as it takes. Raises OSError."""
    sent = 0
    try:
        if not isinstance(sock, ssl.SSLSocket):
            # Nearly always all of it goes at once, and the socket below gevent's says so sooner.
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
    """Return a watcher that `hub.wait` waits with until there is something to read, or the end. Close it before the
    socket. To read first, as gevent does, mostly fails on a socket that has just been asked something."""
    return get_hub().loop.io(sock.fileno(), _READ)
