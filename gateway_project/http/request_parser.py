"""HTTP request parser: llhttp's events become requests, each with its WSGI environment.

Never waits: the caller feeds it bytes.

Ambiguous requests are rejected (RFC 9112, 3 to 6; llhttp rejects the others): a length
beside a transfer coding, two lengths, two hosts. A header with an underscore is dropped: WSGI has one name for it and
its twin with a dash. Trailers are dropped, whatever they say: by then it has been decided who asks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

# Names of headers whose WSGI names are remembered; clients may send any number of others.
_MAX_NAMES = 500
# Bytes of all headers of a request together, and of the line before them with its end.
MAX_HEAD_BYTES = 256 * 1024
# Bytes around a chunked body's own, sizes, extensions and trailers: so many in a row, and in all so many more than the
# body has. Chunks of seven bytes keep to it for ever, of one byte for some 16,000.
_MAX_FRAMING = 64 * 1024
_CHUNKED = "chunked"
_names: dict[bytes, str] = {}
# As a number: `in` takes what it is given for one first, and to fail at that costs five times the search.
_PERCENT = ord("%")


class BadRequest(Exception):
    """A request that is not served: what is wrong, and the HTTP status that says so. The connection ends with it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Http2Preface(BadRequest):
    """A client that starts with HTTP/2 without asking whether the server supports it (RFC 9113, 3.3)."""

    def __init__(self) -> None:
        super().__init__(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here")


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Limits of a request's head: bytes of its line, number of its headers, bytes of one header."""

    line: int
    headers: int
    header: int


class IncomingRequest:
    """One request: its head, and of its body what has come so far."""

    __slots__ = ("_count", "body", "complete", "environ", "expects", "head_done", "keep_alive", "received", "url")

    def __init__(self) -> None:
        self.environ: dict[str, Any] = {}
        self.url = b""
        self.body: deque[bytes] = deque()
        self.received = 0
        self.head_done = self.complete = self.keep_alive = False
        # Whether the client waits for a word before it sends the body.
        self.expects = False
        self._count = 0


class RequestParser:
    """Reads one connection. `requests` has the requests that have begun, oldest first; the last one is being read."""

    def __init__(self, limits: HeadLimits) -> None:
        self.requests: deque[IncomingRequest] = deque()
        self._limits = limits
        self._parser: Any = httptools.HttpRequestParser(self)
        self._now = IncomingRequest()
        self._head_bytes = 0
        # For the chunked body being read: bytes of framing, of these in a row, and body bytes seen before.
        self._framing = self._barren = self._seen = 0
        # While a head is read that is not the client's own; and behind it, the connection's last request.
        self._deaf = self._last = False

    def close(self) -> None:
        """Let go of the parser, which holds this reader's methods: both are freed at once, not as garbage some day."""
        self._parser = None

    def is_in_body(self, size: int) -> bool:
        """Tell whether the next so many bytes are all of the body that is being read, as its length says."""
        now = self._now
        length = now.environ.get("CONTENT_LENGTH") if now.head_done and not now.complete else None
        return length is not None and now.received + size <= int(length)

    def feed(self, data: bytes) -> None:
        """Take in what has arrived. Raises BadRequest."""
        now, had_head = self._now, self._now.head_done
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_with_http(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from None
            raise
        except httptools.HttpParserError as error:
            if self._last and self._now.complete:
                # Bytes after a connection's last request are not read.
                return
            if self._parser.get_method() == b"PRI" and self._now.url == b"*":
                raise Http2Preface from None
            raise BadRequest(400, f"The request is not valid HTTP/1.1: {error}") from None
        if self._now.complete:
            return
        if not self._now.head_done:
            # llhttp tells of a line only once it has ended.
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                raise BadRequest(431, "The request's headers are too large")
        elif had_head and self._now is now:
            self._bound_framing(len(data))

    def _bound_framing(self, size: int) -> None:
        """Account for what came while a body is read. Raises BadRequest when most of it is not the body."""
        received = self._now.received
        gained, self._seen = received - self._seen, received
        self._framing += size - gained
        self._barren = 0 if gained else self._barren + size
        if self._barren > _MAX_FRAMING or self._framing > _MAX_FRAMING + received:
            raise BadRequest(431, "The request's chunk sizes, extensions and trailers are too large")

    def _stay_with_http(self, rest: bytes) -> None:
        """Read on after a head that asked for another protocol: nothing is upgraded to, and its body is a body.

        The parser has ended with that head; another reads the body, behind a head that says only how long it is.
        """
        now = self._now
        environ, now.keep_alive = now.environ, False
        length, coding = environ.get("CONTENT_LENGTH"), environ.get("HTTP_TRANSFER_ENCODING")
        if now.environ["REQUEST_METHOD"] == "CONNECT" or not (length or coding):
            # Later bytes are not read.
            now.complete = True
            return
        now.complete = False
        framing = f"Content-Length: {length}" if length else f"Transfer-Encoding: {coding}"
        self._parser = httptools.HttpRequestParser(self)
        self._deaf = self._last = True
        self._parser.feed_data(
            f"POST / HTTP/1.1\r\nHost: -\r\n{framing}\r\nConnection: close\r\n\r\n".encode("latin-1")
        )
        self._deaf = False
        if not now.complete:
            self.feed(rest)

    # --- llhttp's callbacks
    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._deaf:
            return
        self._now = IncomingRequest()
        self._head_bytes = self._framing = self._barren = self._seen = 0
        self.requests.append(self._now)

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        if self._deaf:
            return
        self._now.url += url
        if len(self._now.url) > self._limits.line:
            raise BadRequest(414, f"The request line is longer than {self._limits.line} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those of one name are joined, as if they had been one. One behind the body is dropped."""
        now, environ = self._now, self._now.environ
        if self._deaf:
            return
        now._count += 1
        if now._count > self._limits.headers:
            raise BadRequest(431, f"The request has more than {self._limits.headers} headers")
        if len(name) + len(value) > self._limits.header:
            raise BadRequest(431, f"A header is longer than {self._limits.header} bytes")
        key = _names.get(name) or _name_of(name)
        if not key or now.head_done:
            return
        text = value.decode("latin-1")
        if key in environ:
            if key in {"HTTP_HOST", "CONTENT_LENGTH"}:
                raise BadRequest(400, "The request has a header twice that may be there once")
            text = f"{environ[key]},{text}"
        environ[key] = text

    def on_headers_complete(self) -> None:
        """Finish the environment."""
        now, environ = self._now, self._now.environ
        if self._deaf:
            return
        version = self._parser.get_http_version()
        if version == "1.1" and "HTTP_HOST" not in environ:
            raise BadRequest(400, "The request has no Host header")
        if version not in {"1.0", "1.1"}:
            raise BadRequest(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here")
        if "HTTP_TRANSFER_ENCODING" in environ:
            _insist_on_chunks(environ["HTTP_TRANSFER_ENCODING"])
        path, _, query = _origin_form(now.url).partition(b"?")
        environ["REQUEST_METHOD"] = self._parser.get_method().decode("latin-1")
        environ["PATH_INFO"] = (unquote_to_bytes(path) if _PERCENT in path else path).decode("latin-1")
        environ["QUERY_STRING"] = query.decode("latin-1")
        environ["RAW_URI"] = now.url.decode("latin-1")
        environ["SERVER_PROTOCOL"] = f"HTTP/{version}"
        # Taken here: after the message llhttp may have begun with the next one.
        now.keep_alive = self._parser.should_keep_alive()
        now.expects = environ.get("HTTP_EXPECT", "").lower() == "100-continue"
        now.head_done = True

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._now.body.append(data)
        self._now.received += len(data)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._now.complete = True


def _name_of(name: bytes) -> str:
    """Return a header's WSGI name, or nothing for one that is dropped."""
    if b"_" in name:
        return ""
    text = name.decode("latin-1").upper().replace("-", "_")
    key = text if text in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{text}"
    if len(_names) < _MAX_NAMES:
        _names[name] = key
    return key


def _insist_on_chunks(coding: str) -> None:
    """Raise BadRequest for a body that is coded in a way of its own before it is cut into chunks.

    One that does not end with chunks is left to the parser, which says what is wrong with it.
    """
    codings = [word.strip(" \t").lower() for word in coding.split(",")]
    if codings[-1] == _CHUNKED and codings != [_CHUNKED]:
        raise BadRequest(501, "The only supported transfer coding is chunked")


def _origin_form(url: bytes) -> bytes:
    """Return the target's path and query; a proxy's absolute form names a host before them. Raises BadRequest."""
    if url.startswith(b"/") or url == b"*":
        return url.partition(b"#")[0]
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        raise BadRequest(400, "The request's target is not a valid URL") from None
    return (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
