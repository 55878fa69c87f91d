"""A gateway that does nothing: the product's own worker class and transport, and between them the bytes as they are.

Its cost is the cost of HTTP here; the rest of the product's cost is its work. Started by gunicorn.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")

from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts

_URL = os.environ["PASSTHROUGH_URL"]
_BUDGET = Timeouts(connect=5, first_byte=60, idle=60, total=60, tick=60)
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer x"}


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Hand the request on, and its answer back."""
    sending = connection_pool.send("POST", _URL, _HEADERS, environ["wsgi.input"].read(), _BUDGET)
    try:
        while True:
            next(sending)
    except StopIteration as done:
        exchange = done.value
    length = exchange.headers.get("content-length")
    headers = [("Content-Type", exchange.headers["content-type"]), *([("Content-Length", length)] if length else [])]
    start_response("200 OK", headers)
    if length:
        with closing(exchange):
            return [exchange.read(1 << 20)]
    return _pieces(exchange)


def _pieces(exchange: Any) -> Iterable[bytes]:
    with closing(exchange):
        yield from exchange.iterate_body()
