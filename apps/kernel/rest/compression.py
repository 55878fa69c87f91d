"""Compression of answers (gzip): JSON that Django answers with, for clients that accept it. Model endpoints have none.

Large answers are packed piece by piece, and others are served in between. Must never pack a page: what a page says of
secrets beside what its caller said could be told by its length (BREACH); JSON goes to whoever brings a key in a header,
which no other page can do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from apps.kernel.turn_queue import let_others_go_on

# Bytes below which nothing is gained; how hard zlib tries; and its window, with gzip's frame.
_LEAST: Final = 1_024
# Bytes that are packed in one go: a millisecond or two.
_PIECE: Final = 64 * 1024
_LEVEL, _GZIP = 6, 31


def gzipped(body: bytes) -> bytes:
    """Return a body in gzip, the same for the same body."""
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    packed = []
    for start in range(0, len(body), _PIECE):
        if start:
            let_others_go_on()
        packed.append(packing.compress(body[start : start + _PIECE]))
    return b"".join([*packed, packing.flush()])


def accepts_gzip(request: HttpRequest) -> bool:
    """Tell whether the client takes gzip: it is named, or `*` is, with a weight above 0."""
    weights: dict[str, str] = {}
    for stated in request.headers.get("Accept-Encoding", "").lower().split(","):
        name, _, parameters = stated.partition(";")
        weights[name.strip()] = parameters.replace(" ", "").removeprefix("q=") or "1"
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.strip("0.") != ""


class CompressionMiddleware:
    """Packs whole JSON answers to GET that have not been packed already."""

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
