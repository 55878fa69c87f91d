"""A client of the protocol that sends what a test asks for, over Django's test client: there a call ends before its
answer begins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from apps.kernel.valkey.redis import client as valkey
from tests.support.upstream import Caller, caller, sandbox_url

__all__ = ["caller", "sandbox_url"]

NEWEST, LATER, EARLIER = "2026-07-28", "2025-11-25", "2025-06-18"
BOTH = "application/json, text/event-stream"


@dataclass(frozen=True)
class Event:
    """An event of a stream: its id, and the message in it; None where it has none."""

    id: str | None
    message: dict[str, Any] | None


def events_of(response: Any) -> list[Event]:
    """Return the events of a stream."""
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    found = []
    for block in b"".join(response.streaming_content).decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and ": " in line)
        if lines:
            data = lines.get("data", "").strip()
            found.append(Event(lines.get("id"), json.loads(data) if data else None))
    return found


def messages_of(response: Any) -> list[dict[str, Any]]:
    """Return the messages of an answer, streamed or whole."""
    if response["Content-Type"] == "application/json":
        return [response.json()]
    return [event.message for event in events_of(response) if event.message is not None]


@dataclass
class McpClient:
    """A client with a key."""

    caller: Caller
    token: str
    session: str | None = None
    revision: str = NEWEST
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000)))

    def send(self, body: Any, method: str = "POST", **headers: str | None) -> Any:
        """Send a body as it is; `headers` by names with underscores, None for one that is left out."""
        sent = {"authorization": f"Bearer {self.token}", "accept": BOTH, "mcp-session-id": self.session}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body)
        content_type = sent.pop("content-type", None) or "application/json"
        stated = {name: value for name, value in sent.items() if value is not None}
        return self.caller.client.generic(method, "/mcp", data, content_type=content_type, headers=stated)

    def ask(self, method: str, params: dict[str, Any] | None = None, **headers: str | None) -> Any:
        """Send a request in the words of the client's revision."""
        request_id, params = next(self.ids), dict(params or {})
        if self.revision != NEWEST:
            stated = {"mcp_protocol_version": self.revision} if self.session else {}
            return self.send(request(method, params, request_id), **{**stated, **headers})
        params["_meta"] = {**envelope(), **params.get("_meta", {})}
        own = {"mcp_protocol_version": NEWEST, "mcp_method": method, "mcp_name": params.get("name")}
        return self.send(request(method, params, request_id), **{**own, **headers})

    def open(self, revision: str) -> Any:
        """Open a session, and return the server's description."""
        self.revision = revision
        hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        answer = self.send(request("initialize", hello, 0))
        assert answer.status_code == 200, answer.content
        self.session = answer["Mcp-Session-Id"]
        note = self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (note.status_code, note.content) == (202, b"")
        return answer.json()["result"]

    def call(self, name: str, arguments: dict[str, Any], token: str | None = None, **headers: str | None) -> Any:
        """Call a tool; with a token, progress is wanted."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.ask("tools/call", {"name": name, "arguments": arguments, **meta}, **headers)

    def result(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool and return its result."""
        return messages_of(self.call(name, arguments))[-1]["result"]


def envelope(revision: str = NEWEST) -> dict[str, Any]:
    """Return what each request says of its client, without a session."""
    return {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def request(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, **({} if params is None else {"params": params})}


def chat_of(text: str, **more: Any) -> dict[str, Any]:
    """Return arguments of the tool `chat`, for the sandbox's model."""
    return {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], **more}


def error_of(answer: Any, status: int, code: int) -> dict[str, Any]:
    """Return the error of an answer that has this status and code."""
    told = answer.json()
    assert (answer.status_code, told["error"]["code"]) == (status, code), told
    assert answer["Content-Type"] == "application/json"
    found: dict[str, Any] = told["error"]
    return found


@pytest.fixture
def mcp(caller: Caller) -> McpClient:
    """A client with the caller's key, which has no session yet."""
    return McpClient(caller, caller.token)


@pytest.fixture(autouse=True)
def _no_sessions() -> Iterator[None]:
    """Leave nothing of a test to the next."""
    yield
    for key in valkey().scan_iter("*mcp:*"):
        valkey().delete(key)
