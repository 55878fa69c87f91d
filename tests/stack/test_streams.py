"""Streams on one worker: side by side, kept alive while the provider is silent, ended when the client leaves."""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack


def open_request(product: Product, content: str, *, stream: bool, request_id: str = "") -> socket.socket:
    """Send a chat request over a socket of its own."""
    body = json.dumps(
        {"model": "sandbox/echo", "messages": [{"role": "user", "content": content}], "stream": stream}
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {product.demo['apiKey']}\r\nx-request-id: {request_id or uuid4().hex}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", product.port))
    connection.sendall(head.encode() + body)
    return connection


def test_200_streams_on_one_worker_do_not_block_each_other(product: Product) -> None:
    count = 200
    waiting = selectors.DefaultSelector()
    received: dict[int, bytes] = {}
    for _ in range(count):
        connection = open_request(product, "one two three [[sandbox chunks=10 gap=400]]", stream=True)
        waiting.register(connection, selectors.EVENT_READ)
        received[connection.fileno()] = b""
    most_at_once = 0
    deadline = time.monotonic() + 60
    while waiting.get_map():
        assert time.monotonic() < deadline
        for key, _ in waiting.select(1):
            connection: Any = key.fileobj
            received[key.fd] += connection.recv(65536)
            if b"data: [DONE]" in received[key.fd]:
                waiting.unregister(connection)
                connection.close()
        under_way = [text for text in received.values() if b"data: {" in text and b"[DONE]" not in text]
        most_at_once = max(most_at_once, len(under_way))
    # Each stream lasts four seconds; had one held up the others, they would never all be under way together.
    assert most_at_once == count
    assert all(text.startswith(b"HTTP/1.1 200") for text in received.values())


def test_a_silent_provider_is_bridged_by_pings(product: Product) -> None:
    with product.chat("slow words here [[sandbox latency=1000 chunks=2]]", stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert response.status_code == 200
    assert lines[:2] == [b": ping", b": ping"]
    assert lines[-1] == b"data: [DONE]"


@pytest.mark.parametrize(
    ("content", "stream", "bytes_first"),
    [
        ("[[sandbox hang=head]]", True, False),
        ("[[sandbox hang=head]]", False, False),
        ("one two three four [[sandbox hang=middle chunks=6]]", True, True),
    ],
    ids=["before the first byte", "plain", "between chunks"],
)
def test_a_client_that_leaves_is_noticed_and_the_provider_is_told(
    product: Product, content: str, stream: bool, bytes_first: bool
) -> None:
    tag = uuid4().hex[:8]
    connection = open_request(product, content.replace("]]", f" tag={tag}]]"), stream=stream, request_id=tag)
    if bytes_first:
        eventually(lambda: b"data: {" in connection.recv(65536))

    def outcome() -> str:
        (seen,) = eventually(lambda: product.sandbox("GET", "/sandbox/requests", tag=tag)["requests"])
        return str(seen["outcome"])

    assert outcome() == "None"
    connection.close()
    eventually(
        lambda: product.sandbox("GET", "/sandbox/requests", tag=tag)["requests"][0]["outcome"] == "client_closed"
    )
    entry = product.log_of(tag)
    assert (entry["canceled"], entry["hasError"], entry["unifiedFinishReason"]) == (True, False, "canceled")
    # The tokens produced are charged, and marked as estimated; without any, there is no charge.
    assert (entry["cost"] > 0, entry["estimatedCost"]) == (bytes_first, bytes_first)


def test_a_provider_that_does_not_answer_in_time_is_504(product: Product) -> None:
    response = product.chat("[[sandbox hang=head]]")
    assert response.status_code == 504
    assert response.json()["error"] == {
        "message": "sandbox did not answer in time: no first byte within 3 s",
        "type": "timeout_error",
        "param": None,
        "code": "upstream_timeout",
    }


def test_a_stream_cut_in_the_middle_ends_with_an_error_frame(product: Product) -> None:
    request_id = uuid4().hex
    with product.chat("one two three four [[sandbox cut=middle chunks=6]]", request_id, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert response.status_code == 200
    assert json.loads(lines[-1].removeprefix(b"data: "))["error"]["type"] == "upstream_error"
    assert b"data: [DONE]" not in lines
    entry = product.log_of(request_id)
    assert (entry["hasError"], entry["unifiedFinishReason"], entry["cost"]) == (True, "upstream_error", 0)


def test_a_body_over_the_limit_is_413(product: Product) -> None:
    response = product.chat("x" * 300_000)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


def test_a_body_that_does_not_arrive_is_408_and_the_connection_is_closed(product: Product) -> None:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {product.demo['apiKey']}\r\nContent-Length: 100\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", product.port), 60) as connection:
        connection.sendall(head.encode() + b'{"model":')
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"


def test_chunked_request_bodies_are_read_and_bounded(product: Product) -> None:
    def pieces(text: str) -> Any:
        body = json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": text}]}).encode()
        return (body[i : i + 1000] for i in range(0, len(body), 1000))

    headers = {"Authorization": f"Bearer {product.demo['apiKey']}", "Content-Type": "application/json"}
    url = f"{product.url}/v1/chat/completions"
    small = requests.post(url, data=pieces("hi " * 1000), headers=headers, timeout=60)
    assert (small.status_code, small.json()["choices"][0]["finish_reason"]) == (200, "stop")
    large = requests.post(url, data=pieces("hi " * 100_000), headers=headers, timeout=60)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
