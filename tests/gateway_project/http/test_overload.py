"""More requests than a worker can work on: which ones it refuses, how, and what goes on being answered."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.gateway_project.http.conftest import Server, serving, until_closed
from tests.gateway_project.http.test_http import HOST, read_one, status_of

MESSAGE = "The gateway has more requests than it can work on right now; try again shortly"


def get(path: bytes) -> bytes:
    """Return a request for a path."""
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    ("path", "envelope"),
    [
        (
            b"/v1/chat/completions",
            {
                "error": {"message": MESSAGE, "type": "api_error", "param": None, "code": "overloaded"},
                "status": 503,
                "message": MESSAGE,
            },
        ),
        (
            b"/v1/messages",
            {
                "type": "error",
                "error": {"type": "overloaded_error", "message": MESSAGE},
                "status": 503,
                "message": MESSAGE,
            },
        ),
        (b"/projects", {"message": MESSAGE}),
        (b"/logs", {"error": True, "status": 503, "message": MESSAGE}),
    ],
)
def test_who_is_shed_is_told_so_in_its_own_words(path: bytes, envelope: dict[str, object]) -> None:
    with serving(REQUESTS_IN_PROGRESS_LIMIT="2") as one:
        busy = [one.connect() for _ in range(2)]
        for client in busy:
            one.hold(client)
        with one.connect() as client:
            client.sendall(get(b"/") * 2)  # Health: it is never shed.
            assert status_of(read_one(client)) == 200
        with one.connect() as client:
            client.sendall(get(path))
            answer = read_one(client)
            assert status_of(answer) == 503
            assert json.loads(answer.partition(b"\r\n\r\n")[2]) == envelope
            assert re.search(rb"\r\nRetry-After: [1-9]\r\n", answer)
            assert re.search(rb"\r\nx-request-id: \S+\r\n", answer)
            one.release()
            for client_ in busy:
                assert status_of(read_one(client_)) == 200
            # The connection has lost nothing by it.
            client.sendall(get(b"/after"))
            assert status_of(read_one(client)) == 200
        for client in busy:
            client.close()


@pytest.mark.parametrize(
    ("line", "more", "connection", "has_body"),
    [
        (b"GET /projects HTTP/1.1\r\n", b"", None, True),
        (b"GET /projects HTTP/1.1\r\n", b"Connection: close\r\n", b"close", True),
        (b"GET /projects HTTP/1.0\r\n", b"Connection: keep-alive\r\n", b"keep-alive", True),
        (b"HEAD /projects HTTP/1.1\r\n", b"Connection: close\r\n", b"close", False),
        (b"HEAD /projects HTTP/1.1\r\n", b"", None, False),
    ],
)
def test_who_is_shed_is_answered_in_the_same_way_on_every_kind_of_connection(
    line: bytes, more: bytes, connection: bytes | None, has_body: bool
) -> None:
    with serving(REQUESTS_IN_PROGRESS_LIMIT="1") as one, one.connect() as busy, one.connect() as client:
        one.hold(busy)
        assert status_of(one.ask(get(b"/metrics"))) == 200
        client.sendall(line + HOST + b"x-request-id: mine-1\r\n" + more + b"\r\n")
        head, _, body = read_head_and_rest(client).partition(b"\r\n\r\n")
        status, *headers = head.split(b"\r\n")
        told = dict(header.split(b": ", 1) for header in headers)
        assert status == b"HTTP/1.1 503 Service Unavailable"
        assert re.fullmatch(rb"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", told.pop(b"Date"))
        expected = {
            b"Content-Type": b"application/json",
            b"Content-Length": b"%d" % len(json.dumps({"message": MESSAGE}, separators=(",", ":"))),
            b"x-request-id": b"mine-1",
            b"Retry-After": b"1",
        }
        assert told == expected | ({} if connection is None else {b"Connection": connection})
        assert len(headers) == len(told) + 1
        assert body == (json.dumps({"message": MESSAGE}, separators=(",", ":")).encode() if has_body else b"")
        one.release()
        assert status_of(read_one(busy)) == 200
        if connection != b"close":
            client.sendall(get(b"/after"))
            assert status_of(read_one(client)) == 200


def read_head_and_rest(client: socket.socket) -> bytes:
    """Return what comes until nothing has come for a while, or the end."""
    data = b""
    client.settimeout(0.3)
    try:
        while piece := client.recv(65_536):
            data += piece
    except TimeoutError:
        pass
    client.settimeout(None)
    return data


def test_a_body_is_not_read_of_a_request_that_would_be_shed() -> None:
    with serving(REQUESTS_IN_PROGRESS_LIMIT="1") as one, one.connect() as busy, one.connect() as client:
        one.hold(busy)
        assert status_of(one.ask(get(b"/metrics"))) == 200
        client.sendall(b"POST /projects HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")
        answer = until_closed(client)
        assert status_of(answer) == 503
        assert b"Connection: close\r\n" in answer


def almost_asked(one: Server, number: int) -> tuple[socket.socket, list[socket.socket]]:
    """Return a connection that keeps the worker from all other work, and so many of whose requests a byte is missing.

    The worker gets those bytes all at once when it is released. Each request then takes its whole attention for
    20 ms, which is as long as a turn of its loop may last.
    """
    first, *others = [one.connect() for _ in range(number + 1)]
    for client in others:
        client.sendall(b"POST /busy HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    # Its turn comes behind theirs: when it is answered they wait for the byte.
    first.sendall(get(b"/small"))
    assert status_of(read_one(first)) == 200
    one.hold(first, b"/blocking")
    return first, others


def test_who_would_wait_longer_than_the_limit_is_shed_and_the_others_are_served() -> None:
    with serving(QUEUE_TIME_LIMIT="0.5") as one:
        first, clients = almost_asked(one, 150)
        for client in clients:
            client.sendall(b"x")
        one.release()
        assert status_of(read_one(first)) == 200
        # Three seconds of work lie before the worker; health does not wait for it.
        assert status_of(one.ask(get(b"/"))) == 200
        answers = [read_one(client) for client in clients]
        statuses = [status_of(answer) for answer in answers]
        assert set(statuses) == {200, 503}
        # As many as half a second holds, and no more than the machine's other work leaves of it.
        assert 5 <= statuses.count(200) <= 100
        assert all(b"Retry-After: " in answer for answer in answers if status_of(answer) == 503)
        # It is over as soon as they are answered.
        clients[0].sendall(get(b"/busy"))
        assert status_of(read_one(clients[0])) == 200
        for client in (first, *clients):
            client.close()


def test_nobody_works_for_a_client_that_left_before_its_turn() -> None:
    server = serving(QUEUE_TIME_LIMIT="30")
    with server as one:
        first, others = almost_asked(one, 60)
        for client in others:
            client.sendall(b"x")
            client.close()
        one.release()
        assert status_of(read_one(first)) == 200
        one.wait_for_log("client.body_aborted")
        first.sendall(get(b"/most-in-a-turn"))
        answered = json.loads(read_one(first).partition(b"\r\n\r\n")[2])["answered"]
        first.close()
    # Beside the two of the first client that of one other, which had its turn at once.
    assert answered == 2 + 1


def test_refusals_are_counted_and_told_once_a_second() -> None:
    server = serving()
    with server as one:
        for _ in range(5):
            assert status_of(one.ask(b"GET / HTTP/1.1\r\n\r\n")) == 400
        one.wait_for_log("client.refused")
    lines = [line for line in server.said.splitlines() if "client.refused" in line]
    assert 1 <= len(lines) <= 5
    assert sum(int(re.findall(r"count=(\d+)", line)[0]) for line in lines) <= 5
    assert all("reason=malformed" in line for line in lines)


def test_a_burst_that_can_be_served_in_time_is_served() -> None:
    with serving(QUEUE_TIME_LIMIT="30") as one:
        first, clients = almost_asked(one, 60)
        for client in clients:
            client.sendall(b"x")
        one.release()
        assert status_of(read_one(first)) == 200
        assert [status_of(read_one(client)) for client in clients] == [200] * 60
        for client in (first, *clients):
            client.close()


def test_what_is_told_from_its_bytes_is_told_as_to_everybody() -> None:
    # The two differ in what the parser has to read: an id of the client's own.
    ask = b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n%b\r\n{}"
    with serving(REQUESTS_IN_PROGRESS_LIMIT="1") as one, one.connect() as busy, one.connect() as client:
        one.hold(busy)
        assert status_of(one.ask(get(b"/metrics"))) == 200
        answers = []
        for more in (b"", b"x-request-id: mine-1\r\n", b""):
            client.sendall(ask % more)
            answers.append(re.sub(rb"(Date|x-request-id): [^\r]*", rb"\1: -", read_one(client)))
        assert status_of(answers[0]) == 503
        assert answers[0] == answers[1] == answers[2]
        assert json.loads(answers[0].partition(b"\r\n\r\n")[2])["error"] == {
            "type": "overloaded_error",
            "message": MESSAGE,
        }
        # Sign-ins are counted by address, and health is always answered: their bytes alone decide neither.
        for path, status in ((b"/auth/sign-in/email", 503), (b"/livez", 200)):
            client.sendall(ask.replace(b"/v1/messages", path) % b"")
            assert status_of(read_one(client)) == status
        one.release()
        assert status_of(read_one(busy)) == 200
        client.sendall(ask % b"")
        assert status_of(read_one(client)) == 200
