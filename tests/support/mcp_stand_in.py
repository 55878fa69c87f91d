"""A small MCP server that speaks streamable HTTP as a test sets it up, and remembers the requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

TOKEN = "tok-a-secret-of-acme-1"
STATELESS = "2026-07-28"


def tool(name: str, description: str = "", **members: Any) -> dict[str, Any]:
    """Return a tool's definition."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **members}


class StandIn:
    """The server's behavior, which a test sets, and the requests it got: method, params, headers in lower case."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.reset()

    def reset(self) -> None:
        """Behave as most servers do, and forget everything."""
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.tools = [tool("echo", "Says it again."), tool("add", "Adds.")]
        self.result: dict[str, Any] = {"content": [{"type": "text", "text": "hello"}]}
        # Tools on a page; None for all on one.
        self.page: int | None = None
        # How: as a stream, with a session, without a handshake; what else is said before an answer.
        self.streams = False
        self.session_id = "s-1"
        self.known_sessions: set[str] | None = None
        self.is_stateless = False
        self.revision = "2025-11-25"
        self.aside: list[dict[str, Any]] = []
        # Instead of an answer to `tools/list` or `tools/call`: seconds of silence, a status with a body, an address.
        self.seconds = 0.0
        # Seconds of silence of a tool that is called, and of nothing else.
        self.holds = 0.0
        self.failure: tuple[int, bytes] | None = None
        self.redirect: str | None = None
        self.error: dict[str, Any] | None = None

    def methods(self) -> list[str]:
        """Return the methods that were asked for, in order."""
        return [method for method, _, _ in self.asked]

    def headers_of(self, method: str) -> dict[str, str]:
        """Return the headers of the last request of a method."""
        return next(headers for asked, _, headers in reversed(self.asked) if asked == method)

    def params_of(self, method: str) -> dict[str, Any]:
        """Return the params of the last request of a method."""
        return next(params for asked, params, _ in reversed(self.asked) if asked == method)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def stand_in(self) -> StandIn:
        """The server's behavior."""
        server: Any = self.server
        stand_in: StandIn = server.stand_in
        return stand_in

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        method, here = message.get("method", "(answer)"), self.stand_in
        here.asked.append((method, message.get("params") or message, headers))
        if method == "initialize":
            self._initialize(message)
        elif "id" not in message or method == "(answer)":
            self._send(202, b"")
        elif here.known_sessions is not None and headers.get("mcp-session-id") not in here.known_sessions:
            self._send(404, b"no such session", "text/plain")
        else:
            self._answer(message)

    def do_DELETE(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.stand_in.asked.append(("DELETE", {}, headers))
        self._send(204, b"")

    def _initialize(self, message: dict[str, Any]) -> None:
        here = self.stand_in
        if here.is_stateless:
            error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
            self._send(404, json.dumps(error).encode())
            return
        result = {"protocolVersion": here.revision, "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
        if here.known_sessions is not None:
            here.session_id = f"s-{len(here.known_sessions) + 1}"
            here.known_sessions.add(here.session_id)
        extra = {"Mcp-Session-Id": here.session_id} if here.session_id else {}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self._send(200, json.dumps(body).encode(), **extra)

    def _answer(self, message: dict[str, Any]) -> None:
        here = self.stand_in
        if seconds := here.seconds or (here.holds if message["method"] == "tools/call" else 0.0):
            time.sleep(seconds)
        if here.redirect is not None:
            self._send(307, b"", "text/plain", Location=here.redirect)
            return
        if here.failure is not None:
            self._send(*here.failure)
            return
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._result_of(message)}
        if here.error is not None:
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": here.error}
        messages = [*here.aside, answer]
        if here.streams:
            # As servers do whose streams can be resumed.
            text = "id: 0\r\ndata: \r\n\r\n"
            text += "".join(f": hi\r\nevent: message\r\ndata: {json.dumps(one)}\r\n\r\n" for one in messages)
            self._send(200, text.encode(), "text/event-stream; charset=utf-8")
        else:
            self._send(200, json.dumps(answer).encode())

    def _result_of(self, message: dict[str, Any]) -> dict[str, Any]:
        here = self.stand_in
        if message["method"] != "tools/list":
            return here.result
        size = here.page or len(here.tools) or 1
        start = int((message.get("params") or {}).get("cursor") or 0)
        result: dict[str, Any] = {"tools": here.tools[start : start + size]}
        if start + size < len(here.tools):
            result["nextCursor"] = str(start + size)
        return result

    def _send(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            # The client has closed the connection.
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def running_stand_in() -> Iterator[StandIn]:
    """Run a server."""
    server: Any = _Server(("127.0.0.1", 0), _Handler)
    server.stand_in = StandIn(server.server_port)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.stand_in
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def _mcp_server() -> Iterator[StandIn]:
    with running_stand_in() as stand_in:
        yield stand_in


@pytest.fixture
def mcp_server(_mcp_server: StandIn, settings: Any) -> StandIn:
    """A server at a private address, which the operator allows; one for all tests of a file."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    _mcp_server.reset()
    return _mcp_server
