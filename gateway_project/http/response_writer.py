"""HTTP response writer: status, headers and body of one answer, framed for HTTP/1.1.

Errors before any view runs are written in the envelope of the route's family, as a view would, with the id and the
headers. Other modules decide that a request is rejected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import cache, lru_cache
from http import HTTPStatus
from struct import pack
from types import TracebackType
from typing import Any

import msgspec

from apps.kernel.concurrency.green_socket import GatheringSender
from apps.kernel.errors import NO_RETRY, ApiError, Overloaded
from apps.kernel.ids import HEADER, OF_ANTHROPIC, request_id_of
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import family_of, family_of_client

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_BODILESS = frozenset({"204", "304"})
# Headers that say how an answer is framed.
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
# A body that is larger goes out in pieces of this many bytes: each may take the client as long as it may be silent.
_PIECE = 256 * 1024
_date = (0, b"")


def date_line() -> bytes:
    """Return the Date header; it is the same for a second."""
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = (now, b"Date: " + formatdate(now, usegmt=True).encode() + b"\r\n")
    return _date[1]


class ResponseWriter:
    """One answer on its way. `keep_alive` tells, once it is sent, whether the connection may carry another.

    The first piece of a body is sent at once, with the head; further ones are gathered.
    """

    def __init__(self, sender: GatheringSender, *, method: str, protocol: str, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.begun = False
        self._sender = sender
        self._head_only = method == "HEAD"
        self._chunks_read = protocol == "HTTP/1.1"
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._chunked = False
        # Bytes of the body that are still to come, if its length is known.
        self._left: int | None = None

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: ExceptionInfo | None = None
    ) -> Callable[[bytes], object]:
        """Take status and headers (WSGI's `start_response`)."""
        if exc_info is not None and self.begun and exc_info[1] is not None:
            raise exc_info[1].with_traceback(exc_info[2])
        if self._status and exc_info is None:
            raise RuntimeError("start_response was called twice")
        self._status, self._headers = status, headers
        return self._write

    def send(self, body: Iterable[bytes]) -> None:
        """Send all of the answer. Raises OSError when the client is gone."""
        if isinstance(body, list) and len(body) == 1:
            self._write(body[0], whole=True)
        else:
            for piece in body:
                if piece:
                    self._write(piece)
            if not self._chunked:
                self._sender.flush()
        if not self.begun:
            self._write(b"", whole=True)
        if self._chunked:
            self._sender.send(b"0\r\n\r\n")
        elif self._left:
            # The body was shorter than its length: the client must not take the next answer for the rest.
            self.keep_alive = False

    def _write(self, data: bytes, *, whole: bool = False) -> None:
        """Send a piece of the body, behind the head if it is the first."""
        head, send = b"", self._sender.gather
        if not self.begun:
            head, send = self._head(len(data) if whole else None), self._sender.send
            self.begun = True
        if self._head_only or self._status[:3] in _BODILESS:
            data, self._left = b"", 0
        elif self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        elif self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        data = head + data
        if len(data) <= _PIECE:
            if data:
                send(data)
            return
        for start in range(0, len(data), _PIECE):
            self._sender.send(data[start : start + _PIECE])

    def _note_framing(self, name: str, value: str) -> None:
        """Take note of a header that says how the answer is framed. Raises ValueError."""
        if name == "content-length":
            self._left = int(value)
        elif name == "transfer-encoding":
            raise ValueError("The transfer coding is not the application's affair")
        elif value.lower() == "close":
            self.keep_alive = False

    def _head(self, length: int | None) -> bytes:
        """Return status line and headers; `length` is the whole body's where it is known. Raises ValueError."""
        if not self._status:
            raise RuntimeError("start_response was not called")
        lines = [f"HTTP/1.1 {self._status}\r\n"]
        for name, value in self._headers:
            lines.append(f"{name}: {value}\r\n")
            if name.lower() in _FRAMING:
                self._note_framing(name.lower(), value)
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ValueError("A header of the answer holds a line break")
        head = text.encode("latin-1") + date_line()
        if self._left is None and self._status[:3] not in _BODILESS:
            if length is not None:
                self._left = length
                head += b"Content-Length: %d\r\n" % length
            elif self._chunks_read:
                self._chunked = not self._head_only
                head += b"Transfer-Encoding: chunked\r\n"
            else:
                # The end of the connection is the end of the body.
                self.keep_alive = False
        if not self.keep_alive:
            head += b"Connection: close\r\n"
        elif not self._chunks_read:
            head += b"Connection: keep-alive\r\n"
        return head + b"\r\n"


# To a client that begins with HTTP/2: empty settings, and the end of the connection with the reason, for its library
# (error HTTP_1_1_REQUIRED) and in words (RFC 9113, 6.5 and 6.8).
_HTTP_2_WORDS = b"Only HTTP/1.1 is spoken here: configure the client for it, or put a proxy that speaks HTTP/2 in front"
_SETTINGS, _GOAWAY, _ERROR_HTTP_1_1_REQUIRED = 0x4, 0x7, 0xD
HTTP_1_1_REQUIRED = (
    pack(">HBBBL", 0, 0, _SETTINGS, 0, 0)
    + pack(">HBBBL", 0, 8 + len(_HTTP_2_WORDS), _GOAWAY, 0, 0)
    + pack(">LL", 0, _ERROR_HTTP_1_1_REQUIRED)
    + _HTTP_2_WORDS
)


class MalformedRequest(ApiError):
    """A request that is not valid HTTP, or not of a kind that is served."""

    status, type, code = 400, "invalid_request_error", "invalid_request"


def refusal(environ: dict[str, Any], error: ApiError) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return status line, headers and body that tell a client of the error."""
    family = family_of_client(environ.get("PATH_INFO", ""), environ)
    body = msgspec.json.encode(family.body_of(error))
    request_id = request_id_of(environ.get("HTTP_X_REQUEST_ID"))
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), (HEADER, request_id)]
    if family is Family.ANTHROPIC:
        headers.append((OF_ANTHROPIC, request_id))
    if error.retry_after is not None:
        headers.append(("Retry-After", _seconds(error.retry_after)))
    if error.forbids_retry:
        headers.append(NO_RETRY)
    if error.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return _status_line(error.status), headers, body


def shed_answer(
    path: str,
    message: str,
    seconds: float | None,
    *,
    sent_id: str | None = None,
    head_only: bool = False,
    kept: bytes = b"",
) -> bytes:
    """Return the whole answer to a request that is shed, behind which the connection takes another.

    It says what `refusal` says. Most of it is written once: when there is too much to do, there is no time for more.
    `sent_id` is the client's own, `kept` the header that says so where that has to be said.
    """
    head, body = _shed(path, head_only, message)
    told = f"{HEADER}: {request_id_of(sent_id)}\r\nRetry-After: {_seconds(seconds)}\r\n"
    return b"".join((head, told.encode("latin-1"), date_line(), kept, b"\r\n", body))


# Paths are the client's own words, of which so many are remembered.
@lru_cache(maxsize=128)
def _shed(path: str, head_only: bool, message: str) -> tuple[bytes, bytes]:
    """Return status line and headers that are the same for all who are shed at a path, and the body."""
    body = msgspec.json.encode(family_of(path).body_of(Overloaded(message)))
    status = _status_line(Overloaded.status)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode("latin-1"), b"" if head_only else body


def _seconds(patience: float | None) -> str:
    return str(max(1, math.ceil(patience or 0)))


@cache
def _status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"
