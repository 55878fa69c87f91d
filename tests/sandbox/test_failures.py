"""Errors and delays on purpose."""

from __future__ import annotations

import json
import time

import pytest
import requests

from tests.sandbox.conftest import (
    Upstream,
    request_bytes,
)


@pytest.mark.parametrize("stream", [False, True])
def test_latency_comes_before_the_first_byte(upstream: Upstream, stream: bool) -> None:
    began = time.monotonic()
    with upstream.ask("hello [[sandbox latency=200]]", stream=stream) as connection:
        assert connection.recv(1) == b"H"
        assert 0.2 <= time.monotonic() - began < 20


def test_gap_comes_between_the_events_of_a_stream(upstream: Upstream) -> None:
    began = time.monotonic()
    response = requests.Session().post(
        f"{upstream.url}/v1/chat/completions",
        data=request_bytes("one two [[sandbox gap=50]]", stream=True).partition(b"\r\n\r\n")[2],
        headers={"authorization": "Bearer any"},
        stream=True,
        timeout=5,
    )
    times = [time.monotonic() for line in response.iter_lines(chunk_size=1) if line]
    assert len(times) == 7  # role, four words, finish, [DONE]
    assert times[-1] - began >= 6 * 0.05
    # The first does not wait for the last, however late a busy machine reads it.
    assert times[-1] - times[0] >= 0.05


def test_gap_comes_between_the_pieces_of_a_plain_body(upstream: Upstream) -> None:
    began = time.monotonic()
    with upstream.ask("hello [[sandbox chunks=4 gap=50]]") as connection:
        pieces = [connection.recv(65536)]
        while not pieces[-1].endswith(b"}"):
            pieces.append(connection.recv(65536))
        assert 0.15 <= time.monotonic() - began < 20
        assert len(pieces) == 4
        json.loads(b"".join(pieces).partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (404, "invalid_request_error", None),
        (418, "invalid_request_error", None),
        (429, "requests", "rate_limit_exceeded"),
        (500, "server_error", None),
        (503, "server_error", None),
        (529, "server_error", None),
    ],
)
def test_errors_in_openai_s_shape(upstream: Upstream, status: int, kind: str, code: str | None, stream: bool) -> None:
    response = upstream.chat(f"hello [[sandbox status={status}]]", stream=stream)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (kind, code, None)
    assert error["message"]
    assert "retry-after" not in response.headers


def test_errors_with_code_and_retry_after(upstream: Upstream) -> None:
    response = upstream.chat("hello", model="echo:status=429:retry-after=1.5:code=insufficient_quota")
    assert response.headers["retry-after"] == "1.5"
    assert response.headers["x-ratelimit-remaining-requests"] == "0"
    assert response.json()["error"]["code"] == "insufficient_quota"


def test_an_error_as_a_web_page(upstream: Upstream) -> None:
    response = upstream.chat("hello [[sandbox status=502 html]]")
    assert (response.status_code, response.headers["content-type"]) == (502, "text/html")
    assert response.text.startswith("<html><body><h1>502</h1>")


def test_a_header_can_lift_an_error(upstream: Upstream) -> None:
    assert upstream.chat("hello", model="down").status_code == 503
    assert upstream.text("hello", model="down", headers={"x-sandbox": "status=200"}) == "You said: hello"


def statuses(upstream: Upstream, directives: str, requests: int) -> list[int]:
    return [upstream.chat(f"hello [[sandbox {directives}]]").status_code for _ in range(requests)]


def test_the_first_requests_of_a_tag_fail(upstream: Upstream, tag: str) -> None:
    assert statuses(upstream, f"status=503 times=2 tag={tag}", 4) == [503, 503, 200, 200]
    assert statuses(upstream, f"status=503 times=2 tag={tag}-other", 1) == [503]
    requests.delete(f"{upstream.url}/sandbox/requests", params={"tag": tag}, timeout=5)
    assert statuses(upstream, f"times=1 tag={tag}", 2) == [500, 200]


def test_times_holds_for_every_failure(upstream: Upstream, tag: str) -> None:
    content = f"hello [[sandbox cut=head times=1 tag={tag}]]"
    with pytest.raises(requests.ConnectionError):
        upstream.chat(content)
    assert upstream.text(content) == "You said: hello"


def test_a_share_of_the_requests_fails(upstream: Upstream, tag: str) -> None:
    assert statuses(upstream, f"p=0.25 tag={tag}", 8) == [200, 200, 200, 500, 200, 200, 200, 500]
    assert statuses(upstream, f"p=0 tag={tag}", 2) == [200, 200]
    headers = {"x-sandbox-tag": f"{tag}-flaky"}
    assert [upstream.chat("hello", model="flaky", headers=headers).status_code for _ in range(4)] == [
        200,
        503,
        200,
        503,
    ]
