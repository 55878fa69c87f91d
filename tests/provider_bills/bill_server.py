"""A scripted administration API of a provider: HTTP on this machine that answers GETs as a test says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

from apps.provider_bills.apis import BillApi, BillClient


class Scripted(NamedTuple):
    """One answer: a JSON value or bytes, the status, and headers."""

    body: Any
    status: int = 200
    headers: dict[str, str] = {}


class Asked(NamedTuple):
    """One GET: path, query and headers (names in lower case)."""

    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]


class BillServer:
    """Answers each path with its script in turn; the last answer repeats. A path without one has an empty page."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.paused: list[float] = []
        self._scripts: defaultdict[str, list[Scripted]] = defaultdict(list)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def script(self, path: str, *answers: Any) -> None:
        """Set the answers of a path."""
        self._scripts[path] = [one if isinstance(one, Scripted) else Scripted(one) for one in answers]

    def client(self, api: BillApi, key: str = "admin-key") -> BillClient:
        """Return a client of this server with the API's headers; it notes pauses instead of making them."""
        return BillClient(self.url, api.headers(key), self.paused.append)

    def paths(self) -> list[str]:
        """Return the paths that were asked for."""
        return [one.path for one in self.asked]

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def answer(self, asked: Asked) -> Scripted:
        """Return the next answer of a path."""
        self.asked.append(asked)
        answers = self._scripts.get(asked.path)
        if not answers:
            return Scripted({"data": [], "has_more": False, "next_page": None})
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                found = outer.answer(Asked(parts.path, parse_qsl(parts.query), headers))
                body = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
                self.send_response(found.status)
                for name, value in found.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Print nothing."""

        return Handler


@pytest.fixture
def server() -> Iterator[BillServer]:
    """A server that lives as long as the test."""
    made = BillServer()
    yield made
    made.close()
