"""A small HTTP server that receives the messages to log sinks, answers as a test sets it up, and keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pytest


class Taken(NamedTuple):
    """A request: names of headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """The server's answers, which a test sets, and the requests it got; `objects` are the bodies of PUT by path."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.reset()

    def reset(self) -> None:
        """Take everything, and forget everything."""
        self.taken: list[Taken] = []
        self.objects: dict[str, bytes] = {}
        self.status, self.answer, self.headers = 200, b"", dict[str, str]()
        self.then: Callable[[], None] = lambda: None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server: Any = self.server
        here: Receiver = server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        here.taken.append(Taken(self.command, self.path, headers, body))
        if self.command == "PUT" and here.status == 200:
            here.objects[self.path] = body
        here.then()
        self.send_response(here.status)
        for name, value in {**here.headers, "Content-Length": str(len(here.answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(here.answer)

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="session")
def _receiver() -> Iterator[Receiver]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.receiver = Receiver(server.server_port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server.receiver
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def receiver(_receiver: Receiver, settings: Any) -> Receiver:
    """A server on this machine, which deployments that allow private addresses may call."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    _receiver.reset()
    return _receiver
