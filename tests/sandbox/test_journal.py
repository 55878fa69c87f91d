"""The journal: each request, and how it ended."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest
import requests

from apps.sandbox import journal
from tests.sandbox.conftest import TOKEN, Upstream, received
from tests.stack.product import eventually


def test_shows_what_was_asked(upstream: Upstream, tag: str) -> None:
    before = time.time()
    headers = {
        "x-sandbox-tag": tag,
        "X-Custom": "Ünïcode".encode().decode("latin-1"),
        "x-api-key": "another-secret-4321",
    }
    response = upstream.chat("hello", headers=headers, user="u-1")
    [entry] = upstream.journal(tag)
    assert entry["body"] == {"model": "echo", "messages": [{"role": "user", "content": "hello"}], "user": "u-1"}
    assert (entry["tag"], entry["method"], entry["path"]) == (tag, "POST", "/v1/chat/completions")
    assert (entry["model"], entry["stream"], entry["status"], entry["outcome"]) == ("echo", False, 200, "answered")
    head = sum(len(f"{name}: {value}\r\n") for name, value in response.headers.items())
    assert entry["bytesSent"] == len("HTTP/1.1 200 OK\r\n") + head + 2 + len(response.content)
    assert before <= entry["startedAt"] <= entry["endedAt"] <= time.time()
    assert entry["headers"]["x-custom"] == headers["X-Custom"]
    assert (
        entry["headers"]["authorization"] == f"Bearer sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()[:12]}...cdef"
    )
    assert entry["headers"]["x-api-key"].startswith("sha256:")


def test_keeps_no_credential_in_clear(upstream: Upstream, tag: str) -> None:
    for model in ("echo", "echo-fast"):
        upstream.chat("hello", model=model, headers={"x-sandbox-tag": tag, "x-api-key": TOKEN, "cookie": f"s={TOKEN}"})
    text = requests.get(f"{upstream.url}/sandbox/requests", timeout=5).text
    assert text.count(tag) >= 2
    assert TOKEN not in text
    assert TOKEN[:-4] not in text


def test_the_tag_is_the_header_s_then_the_scenario_s_then_the_model_s(upstream: Upstream, tag: str) -> None:
    content = f"hello [[sandbox tag={tag}-2]]"
    upstream.chat(content, headers={"x-sandbox-tag": f"{tag}-1"})
    upstream.chat(content)
    upstream.chat("hello", model=f"echo:tag={tag}-3")
    upstream.chat("hello", model=f"echo:code={tag}-4")
    counts = [len(upstream.journal(name)) for name in (f"{tag}-1", f"{tag}-2", f"{tag}-3", f"echo:code={tag}-4")]
    assert counts == [1, 1, 1, 1]


def test_refused_requests_are_there_too(upstream: Upstream, tag: str) -> None:
    headers = {"x-sandbox-tag": tag}
    assert upstream.chat("hello", headers=headers | {"authorization": "Bearer invalid"}).status_code == 401
    assert upstream.chat("hello", headers=headers, model="nobody").status_code == 404
    requests.post(
        f"{upstream.url}/v1/chat/completions", headers=headers | {"authorization": "Bearer x"}, data="{", timeout=5
    )
    requests.get(f"{upstream.url}/v1/models", headers=headers | {"authorization": "Bearer x"}, timeout=5)
    entries = upstream.journal(tag)
    assert [(entry["status"], entry["model"]) for entry in entries] == [
        (401, None),
        (404, "nobody"),
        (400, None),
        (200, None),
    ]
    assert entries[2]["body"] == "{"
    assert {entry["outcome"] for entry in entries} == {"answered"}


def test_a_benchmark_s_requests_are_there_too(upstream: Upstream, tag: str) -> None:
    upstream.chat("hello", model="echo-fast", stream=True, headers={"x-sandbox-tag": tag})
    [entry] = upstream.journal(tag)
    assert (entry["model"], entry["stream"], entry["status"]) == ("echo-fast", True, 200)


def test_forgets_one_tag_or_everything(tag: str) -> None:
    kept = journal.Journal()
    for name in (tag, "other", tag):
        kept.open(name, "POST", "/", {}, b"{}")
        kept.turn(name)
    assert kept.clear(tag) == 2
    assert [entry.tag for entry in kept.entries()] == ["other"]
    assert (kept.turn(tag), kept.turn("other")) == (1, 2)
    assert kept.clear() == 1
    assert kept.turn("other") == 1


def test_is_bounded() -> None:
    kept = journal.Journal()
    for number in range(journal.MAX_ENTRIES + 5):
        kept.open(str(number), "POST", "/", {}, b"")
    assert [entry.tag for entry in kept.entries()][::999] == ["5", "1004"]
    for number in range(70):
        kept.open(f"big-{number}", "POST", "/", {}, bytes(2 << 20))
    assert [entry.tag for entry in kept.entries()] == [f"big-{number}" for number in range(6, 70)]
    assert {len(entry.body) for entry in kept.entries()} == {journal.MAX_BODY}
    for number in range(journal.MAX_TAGS + 1):
        kept.turn(str(number))
    assert (kept.turn("1"), kept.turn("0")) == (2, 1)


@pytest.mark.parametrize(
    ("directives", "body", "status"),
    [
        ("hang=head", {}, None),
        ("latency=60000", {}, None),
        ("hang=body", {}, 200),
        ("hang=3", {"stream": True}, 200),
        ("gap=60000", {"stream": True}, 200),
        ("status=503 chunks=2 gap=60000", {}, 503),
    ],
)
def test_notices_within_milliseconds_that_the_client_left(
    upstream: Upstream, tag: str, directives: str, body: dict[str, Any], status: int | None
) -> None:
    connection = upstream.ask(f"one two three [[sandbox {directives} tag={tag}]]", **body)
    if status:
        assert connection.recv(12) == f"HTTP/1.1 {status}".encode()
    [entry] = eventually(lambda: upstream.journal(tag))
    assert (entry["outcome"], entry["endedAt"]) == (None, None)
    left = time.time()
    connection.close()
    entry = upstream.ended(tag)
    assert (entry["outcome"], entry["status"]) == ("client_closed", status)
    assert 0 <= entry["endedAt"] - left < 0.25


def test_notices_that_the_client_left_while_it_writes(upstream: Upstream, tag: str) -> None:
    connection = upstream.ask(f"[[sandbox kb=20000 tag={tag}]]")
    assert connection.recv(12) == b"HTTP/1.1 200"
    connection.close()
    entry = upstream.ended(tag)
    assert entry["outcome"] == "client_closed"
    assert entry["bytesSent"] < 20000 * 1024


@pytest.mark.parametrize(("directive", "outcome"), [("cut=3", "cut"), ("reset=3", "reset"), ("end=3", "answered")])
def test_says_how_the_sandbox_ended_it(upstream: Upstream, tag: str, directive: str, outcome: str) -> None:
    with upstream.ask(f"one two [[sandbox {directive} tag={tag}]]", stream=True) as connection:
        if outcome == "answered":
            assert connection.recv(8) == b"HTTP/1.1"
        else:
            try:
                received(connection)
            except ConnectionResetError:
                assert outcome == "reset"
        assert upstream.ended(tag)["outcome"] == outcome


def test_serves_others_while_many_hang(upstream: Upstream, tag: str) -> None:
    hanging = [upstream.ask(f"hello [[sandbox hang tag={tag}]]") for _ in range(200)]
    assert upstream.text("hello") == "You said: hello"
    assert [entry["outcome"] for entry in upstream.journal(tag)] == [None] * 200
    for connection in hanging:
        connection.close()
    eventually(lambda: {entry["outcome"] for entry in upstream.journal(tag)} == {"client_closed"})
    assert upstream.text("hello") == "You said: hello"
