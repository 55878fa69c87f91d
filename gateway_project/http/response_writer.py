"""HTTP response writer: status, headers and body of one answer, framed for HTTP/1.1."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from types import TracebackType

Sent = Callable[[bytes], object]
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
    """One answer on its way. `keep_alive` tells, once it is sent, whether the connection may carry another."""

    def __init__(self, send: Sent, *, method: str, protocol: str, keep_alive: bool) -> None:
        self.keep_alive = keep_alive
        self.begun = False
        self._send = send
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
        if not self.begun:
            self._write(b"", whole=True)
        if self._chunked:
            self._send(b"0\r\n\r\n")
        elif self._left:
            # The body was shorter than its length: the client must not take the next answer for the rest.
            self.keep_alive = False

    def _write(self, data: bytes, *, whole: bool = False) -> None:
        """Send a piece of the body, behind the head if it is the first."""
        head = b""
        if not self.begun:
            head = self._head(len(data) if whole else None)
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
                self._send(data)
            return
        for start in range(0, len(data), _PIECE):
            self._send(data[start : start + _PIECE])

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
