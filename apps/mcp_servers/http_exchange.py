"""HTTP exchanges with an MCP server: sends a message, receives messages, with limits on time and bytes.

The address is resolved and checked once and called exactly so; redirects are refused, because credentials are sent.
Messages of failures contain no credentials.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import requests
from urllib3.exceptions import HTTPError

from apps.kernel.errors import ApiError
from apps.kernel.json_bounds import Bounds, OutOfBounds, decode_within
from apps.kernel.secrets.redaction import SecretMask, redact
from apps.keys.ssrf_guard import UnsafeAddressError, resolve_safe_address
from apps.mcp_servers.credentials import Credentials

# Characters of a server's message that are shown.
MAX_TOLD: Final = 300


class McpServerFailed(ApiError):
    """An MCP server could not be reached, or violated the protocol."""

    status, type, code = 502, "upstream_error", "mcp_server_failed"
    from_provider = True


class McpServerTimeout(McpServerFailed):
    """An MCP server did not answer in time."""

    status, type, code = 504, "timeout_error", "mcp_server_timeout"


class McpServerRefused(McpServerFailed):
    """An MCP server rejected its registered credentials."""

    code = "mcp_server_refused"


class McpErrorAnswer(McpServerFailed):
    """An MCP server answered with a JSON-RPC error; `rpc_code` is the server's."""

    code = "mcp_server_error"

    def __init__(self, message: str, rpc_code: int) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code


class SessionGone(Exception):
    """The server no longer knows the session; begin a new one."""


def safe_words(words: object, secrets: Iterable[str]) -> str:
    """Return a server's message without credentials, on one line, shortened for display."""
    # Redact first: truncating could leave half of a credential.
    text = redact(words if isinstance(words, str) else "", secrets)
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:MAX_TOLD]


def error_answer(error: Any, secrets: Iterable[str]) -> McpErrorAnswer:
    """Return the error of a JSON-RPC answer."""
    fields = error if isinstance(error, dict) else {}
    code = fields.get("code")
    words = safe_words(fields.get("message"), secrets)
    is_code = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31
    said = f": {words}" if words else ""
    return McpErrorAnswer(f"The MCP server answered with an error{said}", int(code) if is_code and code else 0)


# Bytes of all answers in one operation, and of an error's body.
MAX_ANSWER: Final = 4 * 1024 * 1024
MAX_REFUSAL: Final = 8_192
# Seconds to connect.
CONNECT_TIMEOUT: Final = 5.0
_BOUNDS: Final = Bounds(values=200_000, depth=64, name=4_096, digits=400)
_PIECE: Final = 64 * 1024
_JSON, _EVENTS = "application/json", "text/event-stream"
Message = dict[str, Any]


class McpTarget(msgspec.Struct, frozen=True):
    """A server to call: its address, its credentials, the seconds for one operation.

    `cdn_loop` is the header value by which this deployment recognizes its own requests, `owner` the organization of the
    server.
    """

    url: str
    credentials: Credentials
    seconds: float
    cdn_loop: str = ""
    owner: UUID | None = None


class HttpExchange:
    """The exchanges of one operation with a server. Methods raise McpServerFailed unless noted."""

    def __init__(self, target: McpTarget) -> None:
        self._target = target
        self._ends = time.monotonic() + target.seconds
        self._left = MAX_ANSWER
        self._mask = SecretMask(target.credentials.secrets)
        try:
            address = resolve_safe_address(target.url, target.owner)
        except UnsafeAddressError as error:
            raise McpServerFailed(f"The MCP server's address cannot be called: {error}") from error
        self._session = address.session()
        self._session.headers.update(
            {
                **target.credentials.presented,
                "Accept": f"{_JSON}, {_EVENTS}",
                # Compressed answers could expand to any size.
                "Accept-Encoding": "identity",
                "User-Agent": "model-gateway",
                **({"CDN-Loop": target.cdn_loop} if target.cdn_loop else {}),
            }
        )

    @property
    def secrets(self) -> list[str]:
        """The values to redact in messages."""
        return self._target.credentials.secrets

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def post(self, message: Message, headers: Mapping[str, str]) -> tuple[Mapping[str, str], Iterator[Message]]:
        """Send a message; return the answer's headers and its messages, none if it was only accepted.

        Messages are read lazily. Raises SessionGone if a request with a session gets 404.
        """
        body = msgspec.json.encode(message)
        with self._in_time():
            response = self._session.post(
                self._target.url,
                data=body,
                headers={**headers, "Content-Type": _JSON},
                timeout=(CONNECT_TIMEOUT, max(self._seconds_left, 0.001)),
                allow_redirects=False,
                stream=True,
            )
        if response.status_code == 404 and "Mcp-Session-Id" in headers:
            response.close()
            raise SessionGone
        content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.status_code >= 300 and not (response.status_code >= 400 and content_type == _JSON):
            raise self._refusal(response)
        if response.status_code >= 400:
            return response.headers, iter([self._error_of(response)])
        if response.status_code == 202:
            response.close()
            return response.headers, iter(())
        return response.headers, self._messages(response, content_type)

    def delete(self, headers: Mapping[str, str], seconds: float) -> None:
        """End a session at the server; errors are ignored."""
        try:
            with gevent.Timeout(seconds, requests.Timeout()):
                self._session.delete(
                    self._target.url, headers=headers, timeout=seconds, allow_redirects=False, stream=True
                ).close()
        except (requests.RequestException, HTTPError, OSError):
            return

    @property
    def _seconds_left(self) -> float:
        return self._ends - time.monotonic()

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Limit waiting for the server to the remaining time. Raises McpServerFailed."""
        left = self._seconds_left
        if left <= 0:
            raise self._late()
        try:
            with gevent.Timeout(left, requests.Timeout()):
                yield
        except (requests.Timeout, TimeoutError) as error:
            raise self._late() from error
        except (requests.RequestException, HTTPError, OSError) as error:
            # The message may quote the address with its query.
            raise McpServerFailed("The MCP server could not be reached") from error

    def _late(self) -> McpServerTimeout:
        return McpServerTimeout(f"The MCP server did not answer within {self._target.seconds:g} s")

    def _pieces(self, response: requests.Response) -> Iterator[bytes]:
        """Yield the answer's bytes as they arrive, up to the limit."""
        try:
            while True:
                with self._in_time():
                    piece = response.raw.read1(_PIECE, decode_content=True)
                if not piece:
                    return
                self._left -= len(piece)
                if self._left < 0:
                    raise McpServerFailed(
                        f"The MCP server answered with more than {MAX_ANSWER} bytes", code="mcp_answer_too_large"
                    )
                yield piece
        finally:
            response.close()

    def _messages(self, response: requests.Response, content_type: str) -> Iterator[Message]:
        if content_type == _EVENTS:
            for data in events(self._pieces(response)):
                yield from self._read(data)
        elif content_type == _JSON:
            yield from self._read(b"".join(self._pieces(response)))
        else:
            response.close()
            raise McpServerFailed("The MCP server answered with neither JSON nor an event stream")

    def _error_of(self, response: requests.Response) -> Message:
        """Return the JSON-RPC error in a failed response. Raises McpServerFailed if there is none."""
        with self._in_time():
            body = response.raw.read(MAX_REFUSAL, decode_content=True)
        response.close()
        try:
            (message,) = self._read(body)
        except (McpServerFailed, ValueError):
            message = {}
        if response.status_code in {401, 403} or not isinstance(message.get("error"), dict):
            raise self._refusal(response, message)
        return message

    def _read(self, data: bytes) -> Iterator[Message]:
        """Yield the messages in a piece of JSON, with credentials redacted."""
        for message in _decoded(data):
            yield self._mask.value(message)

    def _refusal(self, response: requests.Response, message: Message | None = None) -> McpServerFailed:
        response.close()
        status = response.status_code
        error = (message or {}).get("error")
        words = safe_words(error.get("message") if isinstance(error, dict) else error, self.secrets)
        said = f": {words}" if words else ""
        if status in {401, 403}:
            return McpServerRefused(f"The MCP server rejected its registered credentials ({status}{said})")
        if 300 <= status < 400:
            return McpServerFailed("The MCP server redirects, which is not followed: register the final address")
        return McpServerFailed(f"The MCP server answered {status}{said}")


def _decoded(data: bytes) -> Iterator[Message]:
    """Yield the messages in a piece of JSON: one, or a list. Raises McpServerFailed."""
    try:
        value = decode_within(data, _BOUNDS)
    except OutOfBounds as error:
        raise McpServerFailed(f"The MCP server's answer {error}", code="mcp_answer_too_large") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise McpServerFailed("The MCP server's answer is not valid JSON") from error
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            raise McpServerFailed("The MCP server's answer is not a JSON-RPC message")
        yield message


def events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each event with data; the caller limits the number of bytes.

    A resumable stream begins with an event that has an id and no data.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if not line:
            if any(data):
                yield b"\n".join(data)
            data.clear()
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    if any(data):
        # Some servers omit the blank line at the end.
        yield b"\n".join(data)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their endings: LF, CR or CRLF."""
    parts: list[bytes] = []
    after_cr = False
    for chunk in chunks:
        if after_cr and chunk[:1] == b"\n":
            # The second half of a CRLF.
            chunk = chunk[1:]
        if not chunk:
            after_cr = False
            continue
        after_cr = chunk[-1:] == b"\r"
        lines = chunk.splitlines(keepends=True)
        for line in lines:
            bare = line.rstrip(b"\r\n")
            parts.append(bare)
            if len(bare) < len(line):
                yield b"".join(parts)
                parts.clear()
    if parts:
        yield b"".join(parts)
