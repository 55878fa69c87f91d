"""Answers of providers that are too much: in their head, beside their body, in it, packed or not."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from apps.gateway.failures import UpstreamFailure
from apps.gateway.framing import FRAMINGS, BrokenFrames
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream import http_response as exchanges
from apps.gateway.upstream.call_provider import ResponseBounds, check_event, read_within
from apps.kernel.json_bounds import Bounds
from tests.gateway.upstream.test_connection_pool import BUDGET, OK, send, server

MIB = 1024 * 1024
OF_JSON = Bounds(values=1_000, depth=32, name=1_000, digits=1_000)


def pours(head: bytes, piece: bytes, times: int = 400) -> Callable[[socket.socket, bytes], None]:
    """Return a talk that says the head and then the piece over and over, until its reader is gone."""

    def talk(connection: socket.socket, request: bytes) -> None:
        with suppress(OSError):
            connection.sendall(head)
            for _ in range(times):
                connection.sendall(piece)

    return talk


def read(url: str, limit: int = 64 * MIB) -> tuple[str, int]:
    """Ask; return why the answer was given up, and how many bytes had been received."""
    received = 0
    try:
        with closing(send(url, {}, b"", BUDGET)) as answer:
            try:
                answer.read(limit)
            finally:
                received = answer.bytes_received
    except UpstreamFailure as failure:
        return str(failure), received
    return "", received


@pytest.mark.parametrize("line", [b"X-A: ", b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nX-A"], ids=repr)
def test_a_header_that_never_ends_is_given_up(line: bytes) -> None:
    head = line if line.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n" + line
    with server(pours(head, b"a" * 65_536)) as (url, _), pytest.raises(UpstreamFailure, match="headers are too large"):
        send(url, {}, b"", BUDGET)


def test_announcements_without_end_are_given_up() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1_000
    with server(pours(b"", early)) as (url, _), pytest.raises(UpstreamFailure, match="more than 500 headers"):
        send(url, {}, b"", BUDGET)


def test_very_many_headers_are_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(2_000)) + b"\r\n"
    with server(pours(head, b"", 0)) as (url, _), pytest.raises(UpstreamFailure, match="more than 500 headers"):
        send(url, {}, b"", BUDGET)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"2\r\nhi\r\n0\r\nX-A: ", b"a" * 65_536),
        (b"2\r\nhi\r\n0\r\n", b"X-A: a\r\n" * 8_000),
        (b"2;", b"a" * 65_536),
        (b"", b"1;" + b"a" * 1_000 + b"\r\nx\r\n"),
    ],
    ids=["one trailer", "trailers", "one extension", "extensions"],
)
def test_framing_without_end_is_given_up(head: bytes, piece: bytes) -> None:
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server(pours(start + head, piece, 4_000)) as (url, _):
        why, received = read(url)
    assert why == "the answer has more framing than body"
    assert received < 2 * MIB


def test_a_chunk_for_every_byte_is_read() -> None:
    text = b"word " * 20_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with server(pours(answer, b"", 0)) as (url, _), closing(send(url, {}, b"", BUDGET)) as answered:
        assert answered.read(MIB) == text


def test_a_trailer_never_becomes_a_header() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    answer = head + b"2\r\nhi\r\n0\r\nX-A: 2\r\nRetry-After: 9\r\n\r\n"
    with server(pours(answer, b"", 0)) as (url, _), closing(send(url, {}, b"", BUDGET)) as answered:
        assert answered.read(100) == b"hi"
        assert answered.headers == {"transfer-encoding": "chunked", "x-a": "1"}


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(300 * MIB), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with server(pours(head + bomb, b"", 0)) as (url, _):
        assert read(url) == (
            "the answer becomes more than 200 times as long when it is unpacked",
            pytest.approx(MIB, rel=1),
        )


@pytest.mark.parametrize(
    ("coding", "body", "why"),
    [
        (b"gzip", gzip.compress(b"hi" * 1000)[:-9], "the answer was cut off before its compressed end"),
        (b"gzip", gzip.compress(b"hi") + b"hi", "the answer goes on behind its compressed end"),
        (b"gzip", b"hi", "the answer is not compressed as it says"),
        (b"br", b"hi", "the answer is encoded in a way that was not asked for"),
        (b"gzip, gzip", b"hi", "the answer is encoded in a way that was not asked for"),
    ],
    ids=["cut", "garbage behind", "plain", "unasked", "twice"],
)
def test_what_cannot_be_unpacked_is_no_answer(coding: bytes, body: bytes, why: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding, len(body))
    with server(pours(head + body, b"", 0)) as (url, _):
        assert read(url)[0] == why


def test_an_answer_that_says_it_is_too_long_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 * MIB)
    with server(pours(head, b"a" * MIB)) as (url, _):
        why, received = read(url, MIB)
    assert why == f"the answer is longer than {MIB} bytes"
    assert received <= len(head) + 65_536


def test_nothing_is_read_ahead_of_who_takes_it() -> None:
    sent = threading.Event()

    def talk(connection: socket.socket, request: bytes) -> None:
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(64):
                connection.sendall(b"a" * MIB)
            sent.set()

    with server(talk) as (url, _), closing(send(url, {}, b"", BUDGET)) as answer:
        pieces = answer.iterate_body()
        next(pieces)
        # The kernel's buffers take a few megabytes; the rest waits at the sender.
        assert not sent.wait(0.5)
        assert answer.bytes_received <= 2 * 65_536 + 100


def test_a_stream_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_MAX_BODY_BYTES", 2 * MIB)
    with server(pours(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * MIB)) as (url, _):
        assert read(url)[0] == f"the answer is longer than {2 * MIB} bytes"


def test_who_counts_is_told_of_a_large_answer() -> None:
    told: list[int] = []
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * MIB)
    with server(pours(head, b"a" * MIB, 3)) as (url, _), closing(send(url, {}, b"", BUDGET)) as answer:
        assert len(answer.read(4 * MIB, told.append)) == 3 * MIB
    assert 2 * MIB < sum(told) <= 3 * MIB
    told.clear()
    with server(pours(OK, b"", 0)) as (url, _), closing(send(url, {}, b"", BUDGET)) as answer:
        assert answer.read(4 * MIB, told.append) == b"hi"
    assert told == []
    connection_pool.close_idle()


def test_an_answer_of_very_many_values_is_not_parsed() -> None:
    parsed: list[bytes] = []

    def parse(body: bytes) -> list[bytes]:
        parsed.append(body)
        return [body]

    bounds = ResponseBounds(MIB, MIB, OF_JSON)
    with pytest.raises(UpstreamFailure, match=r"^the answer holds more than 1000 values$"):
        read_within(b"[" + b"{}," * 40_000 + b"{}]", bounds, parse)
    assert parsed == []
    assert read_within(b"[]", bounds, parse) == [b"[]"]


@pytest.mark.parametrize("chunk", [1_000, 65_536, 10_000_000])
def test_an_event_of_very_many_values_is_not_parsed(chunk: int) -> None:
    stream = b'data: {"a":1}\n\ndata: [' + b"{}," * 40_000 + b"{}]\n\n"
    chunks = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    bounds = ResponseBounds(MIB, MIB, OF_JSON)
    events = FRAMINGS["sse"](chunks, bounds.event, lambda event: check_event(event, bounds))
    assert next(events) == b'{"a":1}'
    with pytest.raises(BrokenFrames, match=r"^an event of the stream holds more than 1000 values$"):
        next(events)
