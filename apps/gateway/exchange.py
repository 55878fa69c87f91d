"""Reading one answer of a provider, parsed by llhttp, within a budget of time for every wait.

Knows bytes and headers. Must never know what they mean, nor where the socket came from.
"""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import httptools
import msgspec

from apps.gateway.failures import UpstreamFailure
from apps.gateway.readiness import Readiness

_READ_SIZE = 65_536
# Header bytes of an answer; llhttp itself has no bound.
_MAX_HEADER_BYTES = 256 * 1024
# What a socket that does not wait says when it would have to; over TLS also of what is no whole record yet.
NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Budget(msgspec.Struct, frozen=True):
    """Seconds to wait: for the connection, for the first byte, between bytes, for all of it, and before a tick."""

    connect: float
    first_byte: float
    idle: float
    total: float
    tick: float


class Connection(Protocol):
    """A socket that does not wait, and what waits for it."""

    sock: socket.socket
    readiness: Readiness

    def close(self) -> None:
        """Close both."""


class Exchange:
    """One request and its answer. Close it whatever happens: unread answers close the connection, read ones free it."""

    def __init__(self, connection: Connection, budget: Budget, deadline: float, free: Callable[[], None]) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._connection = connection
        self._free = free
        self._budget = budget
        self._deadline = deadline
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._header_bytes = 0
        self._head_done = self._complete = self._closed = self._kept_alive = False
        self._inflate: zlib._Decompress | None = None
        self.received = 0

    # --- llhttp's callbacks
    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the last of a name wins."""
        self._header_bytes += len(name) + len(value)
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Learn the status; 1xx answers only announce the real one."""
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._head_done = True
            if self.headers.get("content-encoding", "") in {"gzip", "deflate"}:
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        else:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._body.append(self._inflate.decompress(data) if self._inflate else data)

    def on_message_complete(self) -> None:
        """Note the end of the answer (of the real one)."""
        self._complete = self._head_done
        # llhttp knows this until the next message begins.
        self._kept_alive = self._parser.should_keep_alive()

    # --- reading
    def read_head(self) -> Iterator[None]:
        """Wait for status and headers; yields whenever nothing has come for `tick` seconds. Raises UpstreamFailure."""
        limit = min(self._deadline, time.monotonic() + self._budget.first_byte)
        while not self._head_done:
            if not self._receive_until(limit):
                yield
            if self._header_bytes > _MAX_HEADER_BYTES:
                raise UpstreamFailure("network", "the answer's headers are too large")

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives; b"" means that nothing has come for `tick` seconds. Raises UpstreamFailure."""
        last = time.monotonic()
        while True:
            if self._body:
                piece = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                self._body.clear()
                if piece:
                    yield piece
                last = time.monotonic()
            if self._complete:
                return
            if not self._receive_until(min(self._deadline, last + self._budget.idle)):
                yield b""

    def read(self, limit: int) -> bytes:
        """Return the whole body. Raises UpstreamFailure, also when it is longer than `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        for piece in self.pieces():
            size += len(piece)
            if size > limit:
                raise UpstreamFailure("network", f"the answer is longer than {limit} bytes")
            parts.append(piece)
        return b"".join(parts)

    def _receive_until(self, limit: float) -> bool:
        """Take in what arrives; False when nothing has for `tick` seconds. Raises UpstreamFailure at the limit."""
        left = limit - time.monotonic()
        patient = self._budget.tick < left
        if not self._connection.readiness.wait(self._budget.tick if patient else max(left, 0.001)):
            if patient:
                return False
            raise UpstreamFailure("timeout", self._what_was_late(limit))
        try:
            data = self._connection.sock.recv(_READ_SIZE)
        except NOT_YET:
            return True
        except OSError as error:
            raise network_failure(error) from error
        if not data:
            self._end_of_stream()
            return True
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, zlib.error) as error:
            raise UpstreamFailure("network", "the answer is not valid HTTP") from error
        return True

    def _end_of_stream(self) -> None:
        """The provider closed: the end of an answer without a length, else a cut."""
        delimited = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
        if not self._head_done or delimited:
            raise UpstreamFailure("network", "the connection was closed before the answer was complete")
        self._complete = True

    def _what_was_late(self, limit: float) -> str:
        if limit >= self._deadline:
            return f"the whole answer took longer than {self._budget.total:g} s"
        if not self._head_done:
            return f"no first byte within {self._budget.first_byte:g} s"
        return f"silent for {self._budget.idle:g} s"

    def close(self) -> None:
        """Free the connection when the answer was read to its end, else close it, which tells the provider to stop."""
        if self._closed:
            return
        self._closed = True
        # It holds this exchange's methods: let go, so that both are freed at once and not when garbage is looked for.
        self._parser = None
        if self._complete and self._kept_alive and not self._body:
            self._free()
        else:
            self._connection.close()


def network_failure(error: OSError) -> UpstreamFailure:
    """Return the failure without addresses: they are the operator's business."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UpstreamFailure("network", "the provider's certificate could not be verified")
    if isinstance(error, socket.gaierror):
        return UpstreamFailure("network", "the provider's address could not be resolved")
    if isinstance(error, ConnectionRefusedError):
        return UpstreamFailure("network", "the connection was refused")
    return UpstreamFailure("network", "the connection was lost")
