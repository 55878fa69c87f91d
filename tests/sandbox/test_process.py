"""The sandbox as a process and as an HTTP server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests

from tests.sandbox.conftest import ROOT, TOKEN, Upstream, received, request_bytes, start
from tests.stack.product import eventually


def read_reply(connection: socket.socket) -> Any:
    """Read exactly one response that has a Content-Length, and return its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1)
    head = data.decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return json.loads(body)


def test_prints_one_line_when_listening_and_stops_on_sigterm() -> None:
    process, line = start("--port", "0")
    assert line.startswith("sandbox listening on http://127.0.0.1:")
    url = line.removeprefix("sandbox listening on ")
    assert requests.get(f"{url}/healthz", timeout=5).json() == {"status": "ok"}
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 0
    assert process.stdout
    assert process.stdout.read() == ""


def test_stops_on_sigterm_while_a_request_hangs() -> None:
    process, line = start("--port", "0")
    upstream = Upstream(line.removeprefix("sandbox listening on "))
    connection = upstream.ask("[[sandbox hang tag=hanging]]")
    eventually(lambda: upstream.journal("hanging"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 0
    connection.close()


def test_listens_on_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "sandbox.sock")
    for _ in range(2):  # the second one finds the first one's socket left behind
        process, line = start("--unix", path)
        assert line == f"sandbox listening on unix:{path}"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(request_bytes("hello"))
            assert read_reply(connection)["object"] == "chat.completion"
        process.kill()
        process.wait(timeout=5)


def test_says_so_when_the_port_is_taken(upstream: Upstream) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "apps.sandbox", "--port", str(upstream.port)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("sandbox cannot listen: ")
    assert process.stderr.count("\n") == 1


def test_needs_no_django_and_none_of_the_other_apps() -> None:
    program = (
        "import sys, apps.sandbox.__main__, apps.sandbox.formats as f; f.all_formats();"
        "print([m for m in sys.modules if m.startswith(('django', 'apps.')) and not m.startswith('apps.sandbox')])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_keeps_the_connection_for_the_next_request(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        for word in ("one", "two"):
            connection.sendall(request_bytes(word))
            reply = read_reply(connection)
            assert reply["choices"][0]["message"]["content"] == f"You said: {word}"


def test_answers_pipelined_requests_in_order(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        connection.sendall(request_bytes("one [[sandbox latency=50]]") + request_bytes("two"))
        said = [read_reply(connection)["choices"][0]["message"]["content"] for _ in range(2)]
        assert said == ["You said: one", "You said: two"]


def test_takes_a_request_in_single_bytes_while_it_waits_for_another(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        connection.sendall(request_bytes("one [[sandbox latency=100]]"))
        for byte in request_bytes("two"):
            connection.sendall(bytes([byte]))
        said = [read_reply(connection)["choices"][0]["message"]["content"] for _ in range(2)]
        assert said == ["You said: one", "You said: two"]


def test_reads_a_chunked_request_body(upstream: Upstream) -> None:
    body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "in pieces"}]}).encode()
    pieces = (body[start : start + 7] for start in range(0, len(body), 7))
    headers = {"authorization": f"Bearer {TOKEN}"}
    response = requests.post(f"{upstream.url}/v1/chat/completions", data=pieces, headers=headers, timeout=5)
    assert response.request.headers["transfer-encoding"] == "chunked"
    assert response.json()["choices"][0]["message"]["content"] == "You said: in pieces"


def test_tells_a_client_that_expects_it_to_continue(upstream: Upstream) -> None:
    head, body = request_bytes("hello").split(b"\r\n\r\n")
    with upstream.connect() as connection:
        connection.sendall(head + b"\r\nexpect: 100-continue\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert read_reply(connection)["object"] == "chat.completion"


def test_closes_when_the_client_asks_for_it(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        connection.sendall(request_bytes("hello").replace(b"host:", b"connection: close\r\nhost:"))
        head, body = received(connection).split(b"\r\n\r\n")
        assert b"connection: close" in head
        assert json.loads(body)["object"] == "chat.completion"


def test_ends_a_stream_with_the_connection_for_http_1_0(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        connection.sendall(request_bytes("hello", stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = received(connection).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert body.startswith(b"data: {")
        assert body.endswith(b"}\n\ndata: [DONE]\n\n")


def test_refuses_what_is_not_http(upstream: Upstream) -> None:
    with upstream.connect() as connection:
        connection.sendall(b"EHLO example.com\r\n\r\n")
        assert received(connection) == b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def test_lists_its_models(upstream: Upstream) -> None:
    headers = {"authorization": "Bearer any"}
    listed = requests.get(f"{upstream.url}/v1/models", headers=headers, timeout=5).json()
    assert listed["object"] == "list"
    assert listed["data"][0] == {"id": "echo", "object": "model", "created": 1767225600, "owned_by": "sandbox"}
    assert [model["id"] for model in listed["data"]] == [
        *("echo", "echo-fast", "tools", "reasoner", "vision", "json", "slow", "flaky", "down", "hang", "cut", "broken"),
        *("no-usage", "free", "painter", "sketcher", "embedder", "embedder-fast", "reranker", "moderator"),
        *("moderator-mistral", "speaker", "speaker-tokens", "listener", "listener-tokens"),
    ]


def test_unknown_paths_are_404(upstream: Upstream) -> None:
    response = requests.get(f"{upstream.url}/v1/chat/completions", timeout=5)
    assert response.status_code == 404
    assert response.json() == {"error": {"message": "Invalid URL (GET /v1/chat/completions)"}}


def test_every_directive_and_model_is_documented() -> None:
    from apps.sandbox import scenario

    page = (ROOT / "docs" / "sandbox.md").read_text()
    directives = [name.replace("_", "-") for name in scenario.Scenario.__struct_fields__]
    missing = [name for name in directives if f"`{name}" not in page or name not in (scenario.__doc__ or "")]
    assert missing == []
    assert [name for name in scenario.MODELS if f"`{name}`" not in page] == []
