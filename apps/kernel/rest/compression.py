"""Compression (gzip) of Django's JSON responses, for clients that accept it. Model endpoints have none.

Large responses are compressed piece by piece while others are served. Pages are never compressed: the size of a page
with secrets and user input could reveal the secrets (BREACH). JSON needs a key in a header, which other sites cannot
send.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from apps.kernel.concurrency.turn_queue import let_others_go_on

# Minimum bytes; compression level; and zlib's window with a gzip header.
_LEAST: Final = 1_024
# Bytes compressed per step: a millisecond or two.
_PIECE: Final = 64 * 1024
_LEVEL, _GZIP = 6, 31


def gzipped(body: bytes) -> bytes:
    """Return a gzipped body; the same body gives the same bytes."""
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = []
    for start in range(0, len(body), _PIECE):
        if start:
            let_others_go_on()
        packed.append(packing.compress(body[start : start + _PIECE]))
    return b"".join([*packed, packing.flush()])


def accepts_gzip(request: HttpRequest) -> bool:
    """Return whether the client accepts gzip: it is named, or `*` is, with a weight above 0."""
    weights: dict[str, str] = {}
    for stated in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameters = stated.partition(";")
        weights[name.strip()] = parameters.replace(" ", "").removeprefix("q=") or "1"
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.strip("0.") != ""


class CompressionMiddleware:
    """Compresses complete JSON responses to GET."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve the request."""
        response = self._get_response(request)
        if (
            isinstance(response, HttpResponse)
            and request.method in {"GET", "HEAD"}
            and response.status_code == 200
            and len(response.content) >= _LEAST
            and response.headers.get("Content-Type", "").startswith("application/json")
            and not response.has_header("Content-Encoding")
        ):
            patch_vary_headers(response, ("Accept-Encoding",))
            if accepts_gzip(request):
                response.content = gzipped(response.content)
                response["Content-Length"] = str(len(response.content))
                response["Content-Encoding"] = "gzip"
        return response
