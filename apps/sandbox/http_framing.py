"""HTTP/1.1 in bytes: requests out of a stream of them, heads and chunks into them, and the parts of multipart forms.

httptools does the parsing: keep-alive, pipelining, Content-Length and chunked request bodies are its work.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import httptools

from apps.sandbox.scenario import SandboxRefusal

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


_DISPOSITION = re.compile(rb'form-data; name="([^"]+)"(?:; filename="([^"]*)")?', re.IGNORECASE)


class Form(NamedTuple):
    """A form: its fields, the same one several times maybe, and its file, with its name."""

    fields: list[tuple[str, str]]
    filename: str
    data: bytes


def read_parts(body: bytes) -> tuple[list[tuple[str, str]], list[tuple[str, str, bytes]]]:
    """Return the fields of a form, and its files: their field, name and content.

    Its first line is the boundary. Raises SandboxRefusal.
    """
    mark, _, _ = body.partition(b"\r\n")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if not mark.startswith(b"--") or pieces[0] or pieces[-1] != b"--\r\n":
        raise SandboxRefusal(400, "Could not parse multipart form")
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    for piece in pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        found = _DISPOSITION.search(head)
        if found is None:
            raise SandboxRefusal(400, "Could not parse multipart form")
        if found[2] is None:
            fields.append((found[1].decode(), data.decode()))
        else:
            files.append((found[1].decode(), found[2].decode(), data))
    return fields, files


def read_form(body: bytes) -> Form:
    """Return the fields and the file of a form. Raises SandboxRefusal."""
    fields, files = read_parts(body)
    if not files:
        raise SandboxRefusal(400, "'file' is required", param="file")
    for name, _, _ in files[1:] if files[0][0] == "file" else files:
        raise SandboxRefusal(400, "There is one file, in `file`", param=name)
    return Form(fields, *files[0][1:])
