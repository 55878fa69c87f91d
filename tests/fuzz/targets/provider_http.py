"""Bytes of providers' HTTP: an answer, or `UpstreamFailure`; never more than was allowed, packed or not."""

from __future__ import annotations

import gzip
import socket
import time
from dataclasses import dataclass

from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.http_response import SocketWaiter, Timeouts, UpstreamResponse
from tests.fuzz.target import Target

BUDGET = Timeouts(connect=1, first_byte=5, idle=5, total=10, tick=1)
MAX_BODY = 256 * 1024
# Bytes of one piece of a body: one read from the socket may unpack to more bytes, but not to this many.
MAX_PIECE = 8 * 1024 * 1024
_PACKED = gzip.compress(b'{"a":1}')
SEEDS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Trailer: a\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(_PACKED), _PACKED),
]


@dataclass
class Connection:
    """A socket that does not wait, as the exchange wants it."""

    sock: socket.socket
    waiter: SocketWaiter
    closed: bool = False

    def close(self) -> None:
        """Close both."""
        self.waiter.close()
        self.sock.close()
        self.closed = True


def run(data: bytes) -> None:
    """Read an answer whose connection is closed behind it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:100_000])
        theirs.shutdown(socket.SHUT_WR)
        ours.settimeout(0.0)
        connection = Connection(ours, SocketWaiter(ours))
        freed: list[bool] = []
        exchange = UpstreamResponse(connection, BUDGET, time.monotonic() + 5, lambda: freed.append(True))
        try:
            for _ in exchange.read_head():
                raise AssertionError("it waited although all bytes were there")
            assert 200 <= exchange.status <= 999
            size = 0
            for piece in exchange.iterate_body():
                assert len(piece) <= MAX_PIECE, f"{len(piece)} bytes at once"
                size += len(piece)
                if size > MAX_BODY:
                    break
        except UpstreamFailure as failure:
            if failure.error_type not in {"network", "timeout"}:
                raise
        finally:
            exchange.close()
        assert connection.closed != bool(freed)
        if freed:
            connection.close()


TARGETS = [Target("provider_http", run, lambda: SEEDS)]
