"""Clients that mean harm, written byte by byte: what each gets, and that others are served meanwhile."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway_project.http.conftest import Server, serving, until_closed
from tests.gateway_project.http.test_http import HOST, read_one, status_of, told

CHUNKED = b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
# Twenty times the bytes that are allowed around a body.
ENDLESS = 20 * 64 * 1024


def body_of(answer: bytes) -> dict[str, object]:
    """Return an answer's JSON."""
    found: dict[str, object] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


@contextmanager
def bystander(server: Server) -> Iterator[list[float]]:
    """Another client's requests on one kept connection for as long as the block lasts: how long each waited."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with server.connect() as client:
            # At least once: an attack may be over before this thread has begun.
            while not (waits and over.is_set()):
                asked = time.monotonic()
                client.sendall(b"GET /small HTTP/1.1\r\n" + HOST + b"\r\n")
                assert status_of(read_one(client)) == 200
                waits.append(time.monotonic() - asked)
                time.sleep(0.002)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()


def push(client: socket.socket, data: bytes) -> None:
    """Send as much as the server takes."""
    try:
        for start in range(0, len(data), 65_536):
            client.sendall(data[start : start + 65_536])
    except OSError:
        pass


def test_a_trailer_never_becomes_a_header(server: Server) -> None:
    answer = server.ask(CHUNKED + b"2\r\nhi\r\n0\r\nAuthorization: Bearer key\r\nX-Two: b\r\n\r\n")
    assert told(answer)["headers"] == {"HTTP_HOST": "gateway", "HTTP_TRANSFER_ENCODING": "chunked"}
    assert told(answer)["body"] == "hi"


def test_trailers_count_against_the_number_of_headers(server: Server) -> None:
    answer = server.ask(CHUNKED + b"0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100)) + b"\r\n")
    assert status_of(answer) == 431


@pytest.mark.parametrize(
    "framing",
    [
        b"0\r\nX-A: " + b"a" * ENDLESS,
        b"1\r\na\r\n" * (ENDLESS // 6),
        b"1;" + b"e" * ENDLESS,
        b"0" * ENDLESS,
        (b"1;" + b"e" * 1000 + b"\r\na\r\n") * (ENDLESS // 1000),
    ],
    ids=["a trailer", "chunks of a byte", "an extension", "leading zeros", "many extensions"],
)
def test_what_stands_around_a_body_has_an_end(server: Server, framing: bytes) -> None:
    with bystander(server) as waits, server.connect() as client:
        push(client, CHUNKED)
        push(client, framing)
        answer = until_closed(client)
        assert status_of(answer) == 431, answer
        assert b"Connection: close\r\n" in answer
    assert waits


def test_chunks_of_a_few_bytes_are_read_however_many_they_are(server: Server) -> None:
    with server.connect() as client:
        client.sendall(CHUNKED)
        client.sendall(b"8\r\n12345678\r\n" * 20_000 + b"0\r\n\r\n")
        assert told(read_one(client))["body"] == "12345678" * 20_000


def test_a_sender_that_does_not_stop_after_its_refusal_keeps_nobody_waiting(server: Server) -> None:
    with bystander(server) as waits, server.connect() as client:
        client.sendall(b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: 999999999\r\n\r\n")
        assert status_of(client.recv(65_536)) == 413
        before, until = len(waits), time.monotonic() + 1
        client.settimeout(0.05)
        while time.monotonic() < until:
            push(client, b"a" * 65_536)
        assert len(waits) > before


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_is_read_beside_an_upgrade_that_is_not_made(server: Server, framing: str) -> None:
    head = (
        b"POST /x HTTP/1.1\r\n"
        + HOST
        + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    )
    rest = (
        b"Content-Length: 5\r\n\r\nhello"
        if framing == "length"
        else b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    answer = server.ask(head + rest + b"GET /smuggled HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert told(answer)["body"] == "hello"
    with server.connect() as client:
        for start in range(len(head + rest)):
            client.sendall((head + rest)[start : start + 1])
        assert told(until_closed(client))["body"] == "hello"


def test_a_coding_before_the_chunks_is_501(server: Server) -> None:
    for coding in (b"gzip, chunked", b"GZIP,\tchunked", b"gzip\r\nTransfer-Encoding: chunked"):
        answer = server.ask(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n")
        assert status_of(answer) == 501
    assert told(server.ask(CHUNKED.replace(b"chunked", b"Chunked") + b"0\r\n\r\n"))["body"] == ""


@pytest.mark.parametrize(
    ("path", "limit", "envelope"),
    [
        ("/auth/sign-in/email", 65_536, {"message": "The request body is larger than 65536 bytes"}),
        ("/projects", 1_048_576, {"message": "The request body is larger than 1048576 bytes"}),
        (
            "/admin/login/",
            1_048_576,
            {"error": True, "status": 413, "message": "The request body is larger than 1048576 bytes"},
        ),
        ("/mcp", 4_194_304, {"error": True, "status": 413, "message": "The request body is larger than 4194304 bytes"}),
        (
            "/v1/messages",
            33_554_432,
            {
                "type": "error",
                "error": {"type": "request_too_large", "message": "The request body is larger than 33554432 bytes"},
                "status": 413,
                "message": "The request body is larger than 33554432 bytes",
            },
        ),
    ],
)
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_is_refused_by_its_routes_limit_before_it_is_read(
    server: Server, path: str, limit: int, envelope: dict[str, object], framing: str
) -> None:
    head = b"POST %b HTTP/1.1\r\n%bx-api-key: k\r\nx-request-id: mine\r\n" % (path.encode(), HOST)
    with server.connect() as client:
        if framing == "length":
            client.sendall(head + b"Content-Length: %d\r\n\r\n" % (limit + 1))
        else:
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            push(client, b"%x\r\n" % (limit + 65_536) + b"a" * (limit + 65_536))
        answer = until_closed(client)
    assert status_of(answer) == 413
    assert body_of(answer) == envelope
    assert b"Connection: close\r\n" in answer
    assert b"x-request-id: mine\r\n" in answer


def test_a_large_body_without_a_credential_is_refused_before_it_is_read(server: Server) -> None:
    message = "Missing or invalid API key"
    for framing in (b"Content-Length: 70000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n20000\r\n" + b"a" * 70_000):
        with server.connect() as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\n" + HOST + framing)
            answer = until_closed(client)
        assert status_of(answer) == 401
        assert body_of(answer)["error"] == {"type": "authentication_error", "message": message}
        assert b"WWW-Authenticate: Bearer\r\n" in answer


def test_a_body_that_is_slow_costs_the_application_nothing() -> None:
    with serving(BODY_TIMEOUT="0.5") as server, server.connect() as slow:
        slow.sendall(b"POST /projects HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n{")
        with bystander(server) as waits:
            answer = until_closed(slow)
        assert status_of(answer) == 408
        assert body_of(answer) == {"message": "The request body did not arrive within 0.5 s"}
        assert waits


def test_an_aborted_body_is_one_line_and_no_error() -> None:
    server = serving()
    with server as one:
        for _ in range(3):
            with one.connect() as client:
                client.sendall(b"POST /projects HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n{")
        assert status_of(one.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")) == 200
        one.wait_for_log("aborted")
    lines = [line for line in server.said.splitlines() if "aborted" in line]
    # At most one a second.
    assert 1 <= len(lines) <= 3
    assert "Traceback" not in server.said
    assert "[ERROR]" not in server.said


def test_a_flood_of_sign_ins_is_refused_before_their_bodies_are_read() -> None:
    head = b"POST /auth/sign-in/email HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
    with serving() as one:
        first = [one.connect() for _ in range(60)]
        for client in first:
            client.sendall(head)
            assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        with one.connect() as client:
            client.sendall(head)
            answer = until_closed(client)
        assert status_of(answer) == 429
        assert body_of(answer) == {"message": "Too many attempts; try again later"}
        assert b"Retry-After: 1\r\n" in answer
        assert status_of(one.ask(b"GET /auth/get-session HTTP/1.1\r\n" + HOST + b"\r\n")) == 200
        for client in first:
            client.close()


def test_a_flood_through_a_proxy_is_not_counted_against_all_of_its_clients() -> None:
    with serving("--forwarded-allow-ips", "127.0.0.1") as one:
        for _ in range(61):
            answer = one.ask(b"POST /auth/sign-in/email HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n")
            assert status_of(answer) == 200
    with serving("--forwarded-allow-ips", "127.0.0.1", NUM_PROXIES="1") as one:
        statuses = [
            status_of(
                one.ask(
                    b"POST /auth/sign-in/email HTTP/1.1\r\n"
                    + HOST
                    + b"X-Forwarded-For: 203.0.113.%d\r\nContent-Length: 0\r\n\r\n" % (number % 2)
                )
            )
            for number in range(120)
        ]
    assert statuses == [200] * 120
