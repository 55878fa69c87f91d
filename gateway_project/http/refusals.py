"""Errors before any view runs, written in the envelope of the route's family, as a view would.

This module writes the envelope, the id and the headers. Other modules decide that a request is rejected.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from http import HTTPStatus
from struct import pack
from typing import Any

import msgspec

from apps.kernel.errors import NO_RETRY, ApiError, Overloaded
from apps.kernel.ids import HEADER, OF_ANTHROPIC, request_id_of
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import family_of, family_of_client
from gateway_project.http.response_writer import date_line

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
    if error.is_final:
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
