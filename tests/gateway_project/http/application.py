"""A small WSGI application that tells what it was asked."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import gevent
from gevent.monkey import get_original

from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route, RouteTable, put_in_force

put_in_force(
    RouteTable(
        [
            Route("v1/chat/completions", None, Family.OPENAI, "chat", "POST"),
            Route("v1/messages", None, Family.ANTHROPIC, "messages", "POST"),
            Route("projects", None, Family.MANAGEMENT),
            Route("auth/sign-in/email", None, Family.MANAGEMENT),
        ],
        unknown={"v1": Family.OPENAI},
        otherwise=Family.LOGS,
    )
)
# The file that lets held requests go, as in `conftest.py`.
RELEASED = "released"
_BLOCKING_SLEEP: Callable[[float], object] = get_original("time", "sleep")
# How many requests have been answered in each turn of the event loop.
_in_turns: Counter[int] = Counter()
_TOLD = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "SERVER_PROTOCOL", "REMOTE_ADDR", "wsgi.url_scheme")


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer by the path: see each branch."""
    path = environ["PATH_INFO"]
    if path == "/most-in-a-turn":
        seen = json.dumps({"most": max(_in_turns.values(), default=0), "answered": _in_turns.total()})
        if environ["QUERY_STRING"] == "anew":
            _in_turns.clear()
        return _plain(start_response, seen.encode())
    _in_turns[gevent.get_hub().loop.iteration] += 1
    if path == "/unread":
        return _plain(start_response, b"refused unread", "413 Content Too Large")
    if path == "/pieces":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return _Pieces(environ)
    if path == "/switch-interval":
        return _plain(start_response, str(sys.getswitchinterval()).encode())
    if path == "/bare":
        start_response("204 No Content", [])
        return []
    if path == "/splitting":
        start_response("200 OK", [("X-Word", "a\r\nX-Injected: b")])
        return [b"never"]
    if path == "/failing":
        raise RuntimeError("of no interest to clients")
    if path == "/short":
        start_response("200 OK", [("Content-Length", "10")])
        return [b"four"]
    if path.endswith("/busy"):
        # Work that no other request can be served beside, as translating a request is.
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            pass
        return _plain(start_response, b"worked")
    if path == "/held":
        _wait_until_released(gevent.sleep)
        return _plain(start_response, b"held")
    if path == "/blocking":
        _wait_until_released(_BLOCKING_SLEEP)
        return _plain(start_response, b"blocked")
    body = environ["wsgi.input"].read()
    told = {name: environ[name] for name in _TOLD}
    told["headers"] = {name: value for name, value in sorted(environ.items()) if name.startswith("HTTP_")}
    told["body"] = body.decode("latin-1")
    return _plain(start_response, json.dumps(told).encode())


def _wait_until_released(sleep: Callable[[float], object]) -> None:
    """Note in the folder of held requests that a request is at work, and wait until the client lets all of them go."""
    folder = Path(os.environ["HELD_REQUESTS"])
    (folder / uuid4().hex).touch()
    while not (folder / RELEASED).exists():
        sleep(0.005)


def _plain(start_response: Any, body: bytes, status: str = "200 OK") -> list[bytes]:
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


class _Pieces:
    """Three pieces, and a note on the socket's other end when it is closed."""

    def __init__(self, environ: dict[str, Any]) -> None:
        self._head = environ["REQUEST_METHOD"] == "HEAD"

    def __iter__(self) -> Iterator[bytes]:
        yield b"one "
        yield b""
        yield b"two "
        yield b"three"
