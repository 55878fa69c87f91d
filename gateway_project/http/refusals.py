"""How a request is refused before any view has seen it: in the words of its route's family, as a view would.

Knows the envelope, the id and the headers of a refusal. Must never decide that a request is refused.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

import msgspec

from apps.kernel.errors import ApiError
from apps.kernel.request_id import HEADER, request_id_of
from apps.kernel.rest.envelopes import body_of, family_of


class MalformedRequest(ApiError):
    """A request that is not valid HTTP, or not of a kind that is served."""

    status, type, code = 400, "invalid_request_error", "invalid_request"


def refusal(environ: dict[str, Any], error: ApiError) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return status line, headers and body that tell a client of the error."""
    body = msgspec.json.encode(body_of(family_of(environ.get("PATH_INFO", "")), error))
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        (HEADER, request_id_of(environ.get("HTTP_X_REQUEST_ID"))),
    ]
    if error.retry_after is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(error.retry_after)))))
    if error.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return f"{error.status} {HTTPStatus(error.status).phrase}", headers, body
