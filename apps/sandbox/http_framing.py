"""HTTP/1.1 in bytes: requests out of a stream of them, heads and chunks into them.

httptools does the parsing: keep-alive, pipelining, Content-Length and chunked request bodies are its work.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import httptools

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """One whole request. Header names are lower-case; of a header that comes twice the last is kept."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    chunks: bool
    """Whether the client understands a chunked answer: HTTP/1.1 or later."""


class RequestReader:
    """Parses bytes into requests, in `ready`. Once `broken`, the rest can no longer be parsed."""

    def __init__(self) -> None:
        self.ready: deque[SandboxRequest] = deque()
        self.broken = False
        self.wants_continue = False
        self._parser = httptools.HttpRequestParser(self)
        self._begin()

    def feed(self, data: bytes) -> None:
        """Take in what the client sent, in whatever pieces."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.broken = True

    def on_url(self, url: bytes) -> None:
        """Called by the parser with a piece of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser with a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser at the end of the head."""
        self.wants_continue = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, data: bytes) -> None:
        """Called by the parser with a piece of the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Called by the parser when the request is whole."""
        path, _, query = self._url.partition(b"?")
        self.ready.append(
            SandboxRequest(
                method=self._parser.get_method().decode(),
                path=unquote(path.decode("latin-1")),
                query=dict(parse_qsl(query.decode("latin-1"))) if query else {},
                headers=self._headers,
                body=self._body[0] if len(self._body) == 1 else b"".join(self._body),
                keep_alive=self._parser.should_keep_alive(),
                chunks=self._parser.get_http_version() != "1.0",
            )
        )
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []


def head_bytes(status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return a response's head."""
    lines = [_status_line(status), *[f"{name}: {value}" for name, value in headers]]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk_bytes(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@cache
def _status_line(status: int) -> str:
    try:
        return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP/1.1 {status} Unknown"
