"""HTTP response of a provider: parsed by llhttp, bounded in size, with a timeout for every wait, from the settings.

A wait for a socket allocates nothing: gevent's own way tries to read first, which fails on a socket that has just been
asked something, and times each wait with an object and a timer made for it, which takes some 4 µs more.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

import httptools
import msgspec
from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from gevent import get_hub
from gevent.hub import Waiter
from msgspec.structs import replace

from apps.gateway.content_decoding import CODINGS, ContentDecoder, CorruptEncoding
from apps.gateway.failures import UpstreamFailure
from apps.kernel.concurrency.green_socket import WOULD_BLOCK, watch_readable
from apps.kernel.concurrency.turn_queue import answer_turns, let_others_go_on


class SocketWaiter:
    """Waits for one socket; for one greenlet at a time, in the thread that made it. Close it before the socket."""

    __slots__ = ("_hub", "_pending", "_readable", "_seconds", "_timer", "turns")

    def __init__(self, sock: socket.socket) -> None:
        self._hub = get_hub()
        self.turns = answer_turns()
        self._readable = watch_readable(sock)
        # TLS may have read more than it has given out; nothing of that is to be seen at the socket.
        self._pending: Any = getattr(sock, "pending", None)
        self._timer: Any = None
        self._seconds = 0.0

    def wait(self, seconds: float) -> bool:
        """Return True as soon as there is something to read, or the end; False when there is nothing for so long."""
        if self._pending is not None and self._pending():
            return True
        timer = self._timer if seconds == self._seconds else self._timer_of(seconds)
        waiter: Waiter[bool] = Waiter(self._hub)
        self._readable.start(waiter.switch, True)
        # Not `start`, which would go on where the timer was stopped.
        timer.again(waiter.switch, False, update=True)
        try:
            return bool(waiter.get())
        finally:
            timer.stop()
            self._readable.stop()

    def _timer_of(self, seconds: float) -> Any:
        """Return a timer, which is kept: nearly all waits are equally long."""
        if self._timer is not None:
            self._timer.close()
        self._timer, self._seconds = self._hub.loop.timer(seconds, seconds), seconds
        return self._timer

    def close(self) -> None:
        """Give the watchers back."""
        self._readable.close()
        if self._timer is not None:
            self._timer.close()
            self._timer = None
            self._seconds = 0.0


_READ_SIZE = 65_536
# Bytes of an answer's head, whatever they are; llhttp itself has no bound. And how many headers are in it.
_MAX_HEAD_BYTES, _MAX_HEADERS = 256 * 1024, 500
# Bytes of an answer that are none of its body (its head, chunks' sizes, trailers): some, and some more with the body.
# A chunk for every byte takes six.
_MAX_BESIDE, _MAX_BESIDE_PER_BYTE = 512 * 1024, 16
# Bytes of a whole stream; the longest answers of several choices, an event for each token, are a tenth of it.
_MAX_BODY_BYTES = 512 * 1024 * 1024
# Bytes of chunks that are passed on before other answers have their turn: some twenty events of a stream, and at first
# a few.
_PIECE, _FIRST_PIECE = 4 * 1024, 512
# Unpacked bytes after which others have their turn.
_FAIR_SHARE = 1024 * 1024
# Bytes of an answer after which its reader reports how many there are so far. Digits of a valid length.
_REPORT_EVERY, _MAX_DIGITS = 256 * 1024, 16


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds to wait: for the connection, for the first byte, between bytes, for all of it, and before a tick."""

    connect: float
    first_byte: float
    idle: float
    total: float
    tick: float


class ReadableConnection(Protocol):
    """A socket that does not wait, and what waits for it."""

    sock: socket.socket
    waiter: SocketWaiter

    def close(self) -> None:
        """Close both."""


class UpstreamResponse:
    """One HTTP response. Close it whatever happens: that frees the connection where it was read to its end, else closes
    the connection."""

    def __init__(
        self, connection: ReadableConnection, timeouts: Timeouts, deadline: float, free: Callable[[], None]
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._connection = connection
        self._free = free
        self._timeouts = timeouts
        self._deadline = deadline
        self._parser: Any = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._head_bytes = self._headers = self._body_bytes = 0
        self._head_done = self._complete = self._closed = self._kept_alive = self._surplus = False
        # Whether a piece of the body has been passed on: the first goes before the further ones of other answers.
        self._in_progress = False
        # Whether it is read as a whole: then its pieces cost nothing, and each turn that they wait delays it.
        self._is_whole = False
        self._decoder: ContentDecoder | None = None
        self.bytes_received = 0

    # --- llhttp's callbacks
    def on_message_begin(self) -> None:
        """Note bytes behind a complete answer: they are unsolicited, and the connection is not used again."""
        self._surplus = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the last of a name wins. A field behind the body (a trailer) is ignored."""
        if self._head_done:
            return
        self._headers += 1
        if self._headers > _MAX_HEADERS:
            raise UpstreamFailure("network", f"the answer has more than {_MAX_HEADERS} headers")
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Learn the status; 1xx answers only announce the real one."""
        if self._surplus:
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._head_done = True
            coding = self.headers.get("content-encoding", "").strip().lower()
            if coding in CODINGS:
                self._decoder = ContentDecoder()
            elif coding not in {"", "identity"}:
                raise UpstreamFailure("network", "the answer is encoded in a way that was not asked for")
        else:
            self.headers.clear()

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self._surplus:
            return
        self._body_bytes += len(data)
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Note the end of the answer (of the real one)."""
        if self._surplus:
            return
        self._complete = self._head_done
        # llhttp knows this until the next message begins.
        self._kept_alive = self._parser.should_keep_alive()

    # --- reading
    def read_head(self) -> Iterator[None]:
        """Wait for status and headers; yields whenever nothing has come for `tick` seconds. Raises UpstreamFailure."""
        limit = min(self._deadline, time.monotonic() + self._timeouts.first_byte)
        while not self._head_done:
            if not self._receive_until(limit):
                yield

    def iterate_body(self) -> Iterator[bytes]:
        """Yield the body as it is asked for; b"" means that nothing has come for `tick` seconds. Nothing is read ahead.

        All pieces but the first wait for the turns of answers in progress, except of a body that is read as a whole.
        Raises UpstreamFailure.
        """
        last = time.monotonic()
        while True:
            while self._body:
                piece = self._take_piece()
                if self._decoder is not None:
                    yield from self._decode(self._decoder, piece)
                elif piece:
                    yield piece
                last, self._in_progress = time.monotonic(), not self._is_whole
                if self._body:
                    self._connection.waiter.turns.take()
            if self._complete:
                if self._decoder is not None:
                    self._finish(self._decoder)
                return
            if not self._receive_until(min(self._deadline, last + self._timeouts.idle)):
                yield b""

    def read(self, limit: int, report_size: Callable[[int], object] | None = None) -> bytes:
        """Return the whole body; `report_size` is called after every so many bytes more of a large one.

        Raises UpstreamFailure, also when it is longer than `limit` bytes, and what `report_size` raises.
        """
        parts: list[bytes] = []
        size = reported = 0
        self._is_whole = True
        stated = self.headers.get("content-length", "")
        if stated.isdecimal() and (len(stated) > _MAX_DIGITS or int(stated) > limit):
            raise UpstreamFailure("network", f"the answer is longer than {limit} bytes")
        for piece in self.iterate_body():
            size += len(piece)
            if size > limit:
                raise UpstreamFailure("network", f"the answer is longer than {limit} bytes")
            parts.append(piece)
            if report_size is not None and size - reported > _REPORT_EVERY:
                report_size(size - reported)
                reported = size
        return b"".join(parts)

    def _take_piece(self) -> bytes:
        """Return what has arrived of the body, as far as it goes on in one turn; chunks stay whole."""
        body = self._body
        if len(body) == 1:
            return body.pop()
        if self._is_whole:
            piece = b"".join(body)
            body.clear()
            return piece
        size, most = 0, _PIECE if self._in_progress else _FIRST_PIECE
        for count, chunk in enumerate(body, 1):  # noqa: B007 - the number of chunks that are taken
            size += len(chunk)
            if size >= most:
                break
        piece = b"".join(body[:count])
        del body[:count]
        return piece

    def _decode(self, decoder: ContentDecoder, data: bytes) -> Iterator[bytes]:
        """Yield what came of a compressed body, unpacked in steps. Raises UpstreamFailure."""
        since = 0
        try:
            for piece in decoder.decode(data):
                yield piece
                if decoder.decoded_bytes > _MAX_BODY_BYTES:
                    raise UpstreamFailure("network", f"the answer is longer than {_MAX_BODY_BYTES} bytes")
                since += len(piece)
                if since > _FAIR_SHARE:
                    since = 0
                    let_others_go_on()
        except CorruptEncoding as error:
            raise UpstreamFailure("network", f"the answer {error}") from error

    def _finish(self, decoder: ContentDecoder) -> None:
        try:
            decoder.finish()
        except CorruptEncoding as error:
            # A connection that carried a corrupt body is not used again.
            self._kept_alive = False
            raise UpstreamFailure("network", f"the answer {error}") from error

    def _receive_until(self, limit: float) -> bool:
        """Take in what arrives; False when nothing has for `tick` seconds. Raises UpstreamFailure at the limit."""
        left = limit - time.monotonic()
        patient = self._timeouts.tick < left
        if not self._connection.waiter.wait(self._timeouts.tick if patient else max(left, 0.001)):
            if patient:
                return False
            raise UpstreamFailure("timeout", self._timeout_message(limit))
        if self._in_progress:
            self._connection.waiter.turns.take()
        try:
            data = self._connection.sock.recv(_READ_SIZE)
        except WOULD_BLOCK:
            return True
        except OSError as error:
            raise network_failure(error) from error
        if not data:
            self._end_of_stream()
            return True
        self.bytes_received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, UpstreamFailure):
                raise error.__context__ from None
            raise UpstreamFailure("network", "the answer is not valid HTTP") from error
        if not self._head_done or self.bytes_received > _MAX_BESIDE:
            self._check_wire(len(data))
        return True

    def _check_wire(self, arrived: int) -> None:
        """Raise UpstreamFailure when too much has come: of a head that does not end, beside the body, or of it."""
        if not self._head_done:
            # llhttp tells of a header only once it has ended.
            self._head_bytes += arrived
            if self._head_bytes > _MAX_HEAD_BYTES:
                raise UpstreamFailure("network", "the answer's headers are too large")
        elif self.bytes_received - self._body_bytes > _MAX_BESIDE + _MAX_BESIDE_PER_BYTE * self._body_bytes:
            raise UpstreamFailure("network", "the answer has more framing than body")
        elif self._body_bytes > _MAX_BODY_BYTES:
            raise UpstreamFailure("network", f"the answer is longer than {_MAX_BODY_BYTES} bytes")

    def _end_of_stream(self) -> None:
        """The provider closed: the end of an answer without a length, else a cut."""
        delimited = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
        if not self._head_done or delimited:
            raise UpstreamFailure("network", "the connection was closed before the answer was complete")
        self._complete = True

    def _timeout_message(self, limit: float) -> str:
        if limit >= self._deadline:
            return f"the whole answer took longer than {self._timeouts.total:g} s"
        if not self._head_done:
            return f"no first byte within {self._timeouts.first_byte:g} s"
        return f"silent for {self._timeouts.idle:g} s"

    def close(self) -> None:
        """Free the connection when the answer was read to its end, else close it, which tells the provider to stop."""
        if self._closed:
            return
        self._closed = True
        # It holds this response's methods: let go, so that both are freed at once and not when garbage is looked for.
        self._parser = None
        if self._complete and self._kept_alive and not self._surplus and not self._body:
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


@cache
def default_timeouts() -> Timeouts:
    """Return the timeouts that hold for every call."""
    return Timeouts(
        connect=settings.UPSTREAM_CONNECT_TIMEOUT,
        first_byte=settings.UPSTREAM_FIRST_BYTE_TIMEOUT,
        idle=settings.UPSTREAM_IDLE_TIMEOUT,
        total=settings.UPSTREAM_TOTAL_TIMEOUT,
        tick=settings.HEARTBEAT_INTERVAL,
    )


def timeouts_within(first_byte: float | None, total: float | None) -> Timeouts:
    """Return the timeouts of a call, which may be shorter than usual until its first byte, and altogether."""
    usual = default_timeouts()
    if total is not None:
        usual = replace(usual, first_byte=min(usual.first_byte, total), total=min(usual.total, total))
    return usual if first_byte is None else replace(usual, first_byte=min(usual.first_byte, first_byte))


@receiver(setting_changed)
def _forget(**_: object) -> None:
    default_timeouts.cache_clear()
