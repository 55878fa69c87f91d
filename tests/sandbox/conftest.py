"""A sandbox of its own process on a free port, and the few ways to talk to it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.stack.product import eventually

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "sk-sandbox-0123456789abcdef"


class Upstream:
    """A running sandbox, as its clients see it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)

    def chat(self, content: Any, *, headers: dict[str, str] | None = None, **body: Any) -> requests.Response:
        """Ask, with one user message or with a whole list of messages."""
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return requests.post(
            f"{self.url}/v1/chat/completions",
            json={"model": "echo", "messages": messages} | body,
            headers={"authorization": f"Bearer {TOKEN}"} | (headers or {}),
            timeout=10,
        )

    def text(self, content: Any, **body: Any) -> Any:
        """Ask, and return the first choice's content."""
        response = self.chat(content, **body)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["message"]["content"]

    def connect(self) -> socket.socket:
        """Return a plain connection."""
        connection = socket.create_connection((self.host, self.port), timeout=5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, content: str, **body: Any) -> socket.socket:
        """Return a connection on which a request was just sent."""
        connection = self.connect()
        connection.sendall(request_bytes(content, **body))
        return connection

    def journal(self, tag: str) -> list[dict[str, Any]]:
        """Return what the journal has of a tag."""
        response = requests.get(f"{self.url}/sandbox/requests", params={"tag": tag}, timeout=5)
        entries: list[dict[str, Any]] = response.json()["requests"]
        return entries

    def ended(self, tag: str) -> dict[str, Any]:
        """Return the only entry of a tag, once its request is over."""
        entry: dict[str, Any] = eventually(lambda: next((one for one in self.journal(tag) if one["outcome"]), None))
        assert self.journal(tag) == [entry]
        return entry


def request_bytes(content: str, **body: Any) -> bytes:
    """Return a whole request as it goes over the wire."""
    data = json.dumps({"model": "echo", "messages": [{"role": "user", "content": content}]} | body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: sandbox\r\nauthorization: Bearer {TOKEN}\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def received(connection: socket.socket) -> bytes:
    """Return everything that comes until the other side closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def read_until_silence(connection: socket.socket) -> bytes:
    """Return what comes until nothing comes for a while, though the connection stays open."""
    data = b""
    connection.settimeout(0.3)
    while True:
        try:
            piece = connection.recv(65536)
        except TimeoutError:
            return data
        assert piece, "closed instead of silent"
        data += piece


def answer(upstream: Upstream, content: str, **body: Any) -> tuple[str, bytes]:
    """Return head and body as they came over the wire, up to the close of the connection."""
    with upstream.connect() as connection:
        connection.sendall(request_bytes(content, **body).replace(b"host:", b"connection: close\r\nhost:"))
        head, _, rest = received(connection).partition(b"\r\n\r\n")
        return head.decode(), rest


def unchunked(body: bytes) -> list[bytes]:
    """Return the chunks of a body; the last one is empty only if the body is complete."""
    chunks = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(body[:length])
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]
    return chunks


def events(upstream: Upstream, content: str = "one two three") -> list[bytes]:
    """Return the events of an untroubled stream, and the end."""
    return unchunked(answer(upstream, content, stream=True)[1])


def same_id(chunks: list[bytes]) -> list[bytes]:
    """Return the chunks without what tells two conversations apart."""
    ids = {
        json.loads(chunk[6:])["id"] for chunk in chunks if chunk.startswith(b'data: {"id"') and chunk.endswith(b"}\n\n")
    }
    for identity in ids:
        chunks = [chunk.replace(identity.encode(), b"ID") for chunk in chunks]
    return chunks


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a sandbox and return it with the line that it printed once it listened."""
    process = subprocess.Popen(
        [sys.executable, "-m", "apps.sandbox", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """One sandbox for all tests; they stay apart by their tags."""
    process, line = start("--port", "0")
    try:
        yield Upstream(line.removeprefix("sandbox listening on "))
    finally:
        process.terminate()
        assert process.wait(timeout=5) == 0


@pytest.fixture
def tag() -> str:
    """A name of the test's own in the journal."""
    return f"t-{uuid.uuid4().hex[:12]}"
