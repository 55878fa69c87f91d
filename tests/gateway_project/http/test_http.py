"""Requests as clients, proxies and attackers write them, to the worker class of production."""
# length: one table of requests and what each must get

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from typing import Any

import pytest

from tests.gateway_project.http.conftest import Server, serving, until_closed

HOST = b"Host: gateway\r\n"
# By llhttp's strict reading (RFC 9112, 3 to 6): what two readers could read differently is refused by both.
# ruff: noqa: E501 - a request is easier to read on one line
AMBIGUOUS = {
    "a length beside chunks": b"POST / HTTP/1.1\r\n%bContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
    "chunks beside a length": b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET",
    "two lengths": b"POST / HTTP/1.1\r\n%bContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "the same length twice": b"POST / HTTP/1.1\r\n%bContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": b"POST / HTTP/1.1\r\n%bContent-Length: 5, 5\r\n\r\nhello",
    "a signed length": b"POST / HTTP/1.1\r\n%bContent-Length: +5\r\n\r\nhello",
    "a negative length": b"POST / HTTP/1.1\r\n%bContent-Length: -5\r\n\r\nhello",
    "a hexadecimal length": b"POST / HTTP/1.1\r\n%bContent-Length: 0x5\r\n\r\nhello",
    "a coding that is none": b"POST / HTTP/1.1\r\n%bTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks that are not last": b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"POST / HTTP/1.1\r\n%bTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\n%bX-A: b\r\n c\r\n\r\n",
    "a header that begins with a space": b"GET / HTTP/1.1\r\n X-A: b\r\n%b\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\n%b: b\r\n\r\n",
    "a zero byte in a header": b"GET / HTTP/1.1\r\n%bX-A: b\0c\r\n\r\n",
    "a bare line feed in a header": b"GET / HTTP/1.1\r\n%bX-A: b\nX-B: c\r\n\r\n",
    "a chunk's size that is no number": b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n%bHost: elsewhere\r\n\r\n",
    "another protocol": b"GET / HTTP/2.0\r\n%b\r\n",
    "no protocol at all": b"GET /\r\n%b\r\n",
    "a method nobody knows": b"STEAL / HTTP/1.1\r\n%b\r\n",
}


def told(answer: bytes) -> Any:
    """Return what the application tells of the request it got."""
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def status_of(answer: bytes) -> int:
    """Return the status of an answer."""
    return int(answer.split(b" ", 2)[1])


def read_one(client: socket.socket) -> bytes:
    """Return one answer with a length from a connection that stays open."""

    def received() -> bytes:
        data = client.recv(65_536)
        assert data, "the server closed the connection"
        return data

    data = b""
    while b"\r\n\r\n" not in data:
        data += received()
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head.lower())
    assert found
    while len(body) < int(found[1]):
        body += received()
    return head + b"\r\n\r\n" + body


def test_a_request_becomes_its_environment(server: Server) -> None:
    answer = server.ask(
        b"POST /a%20b/%C3%A9?c=%20d HTTP/1.1\r\n"
        + HOST
        + b"X-One: 1\r\nX-Two: 2\r\nX-Two: 3\r\nContent-Length: 5\r\n\r\nhello"
    )
    assert told(answer) == {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/a b/\u00c3\u00a9",
        "QUERY_STRING": "c=%20d",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "headers": {"HTTP_HOST": "gateway", "HTTP_X_ONE": "1", "HTTP_X_TWO": "2,3"},
        "body": "hello",
    }


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_it_does_not_matter_in_which_pieces_a_request_comes(server: Server, size: int) -> None:
    request = (
        b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    )
    with server.connect() as client:
        for start in range(0, len(request), size):
            client.sendall(request[start : start + size])
        assert told(read_one(client))["body"] == "hello world"


def test_a_connection_carries_one_request_after_another(server: Server) -> None:
    with server.connect() as client:
        for number in range(20):
            client.sendall(b"GET /%d HTTP/1.1\r\n%b\r\n" % (number, HOST))
            assert told(read_one(client))["PATH_INFO"] == f"/{number}"


def test_requests_sent_at_once_are_answered_in_order(server: Server) -> None:
    one = b"POST /%d HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\n%d"
    answer = server.ask(b"".join(one % (number, number) for number in range(9)), answers=9)
    bodies = [json.loads(part) for part in re.findall(rb"\{.*?\}\}?, \"body\": \"\d\"\}", answer)]
    assert [(body["PATH_INFO"], body["body"]) for body in bodies] == [(f"/{n}", f"{n}") for n in range(9)]


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_two_readers_could_read_differently_is_refused(server: Server, name: str) -> None:
    answer = server.ask(AMBIGUOUS[name] % HOST)
    assert status_of(answer) in {400, 505}, answer
    assert len(re.findall(rb"HTTP/1.1 \d", answer)) == 1
    assert b"Connection: close\r\n" in answer


def test_a_header_with_an_underscore_cannot_pass_for_its_twin_with_a_dash(server: Server) -> None:
    answer = server.ask(b"GET / HTTP/1.1\r\n" + HOST + b"X_Api_Key: forged\r\nX-Other: real\r\n\r\n")
    assert told(answer)["headers"] == {"HTTP_HOST": "gateway", "HTTP_X_OTHER": "real"}


def test_a_request_without_a_host_is_refused(server: Server) -> None:
    assert status_of(server.ask(b"GET / HTTP/1.1\r\n\r\n")) == 400
    assert told(server.ask(b"GET / HTTP/1.0\r\n\r\n"))["SERVER_PROTOCOL"] == "HTTP/1.0"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: y\r\n" % n for n in range(100)) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Long: " + b"y" * 17_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Endless: " + b"y" * 600_000, 431),
    ],
    ids=["a long line", "many headers", "a long header", "a header without an end"],
)
def test_a_head_has_limits(server: Server, request_: bytes, status: int) -> None:
    with server.connect() as client:
        try:
            client.sendall(request_)
        except OSError:
            pass  # It need not take all of it.
        assert status_of(until_closed(client)) == status


def test_a_proxys_absolute_target_is_read_as_its_path(server: Server) -> None:
    answer = told(server.ask(b"GET http://elsewhere/a?b=c HTTP/1.1\r\n" + HOST + b"\r\n"))
    assert (answer["PATH_INFO"], answer["QUERY_STRING"]) == ("/a", "b=c")
    assert answer["headers"]["HTTP_HOST"] == "gateway"


def test_an_answer_without_a_length_comes_in_chunks(server: Server) -> None:
    answer = server.ask(b"GET /pieces HTTP/1.1\r\n" + HOST + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"


def test_an_old_client_gets_no_chunks_and_the_end_of_the_connection(server: Server) -> None:
    with server.connect() as client:
        client.sendall(b"GET /pieces HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = until_closed(client).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert b"Connection: close" in head
    assert body == b"one two three"


def test_an_old_client_that_asks_for_it_keeps_its_connection(server: Server) -> None:
    with server.connect() as client:
        for _ in range(2):
            client.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            answer = read_one(client)
            assert b"Connection: keep-alive\r\n" in answer
            assert told(answer)["PATH_INFO"] == "/"


def test_a_head_request_gets_no_body(server: Server) -> None:
    with server.connect() as client:
        client.sendall(
            b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\nHEAD /pieces HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n"
        )
        answers = until_closed(client).split(b"\r\n\r\n")
    assert [part[:15] for part in answers] == [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", b""]


def test_an_answer_without_content_has_neither_body_nor_length(server: Server) -> None:
    answer = server.ask(b"GET /bare HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert b"ength" not in answer
    assert b"Encoding" not in answer


def test_a_client_that_waits_for_a_word_gets_it(server: Server) -> None:
    with server.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hello")
        assert told(read_one(client))["body"] == "hello"


def test_a_body_that_nobody_read_is_not_taken_for_the_next_request(server: Server) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    with server.connect() as client:
        client.sendall(b"POST /unread HTTP/1.1\r\n" + HOST + b"Content-Length: 5000000\r\n\r\n")
        answer = client.recv(65_536)
        assert status_of(answer) == 413
        assert b"Connection: close" in answer
        client.sendall(smuggled)
        assert until_closed(client) == b""


def test_a_body_that_is_there_and_unread_leaves_the_connection_good(server: Server) -> None:
    with server.connect() as client:
        client.sendall(b"POST /unread HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello")
        assert status_of(read_one(client)) == 413
        client.sendall(b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n")
        assert told(read_one(client))["PATH_INFO"] == "/next"


def test_a_large_body_comes_whole(server: Server) -> None:
    body = b"0123456789abcdef" * 131_072
    with server.connect() as client:
        head = b"POST /v1/x HTTP/1.1\r\n" + HOST + b"x-api-key: k\r\nContent-Length: %d\r\n\r\n"
        client.sendall(head % len(body) + body)
        assert told(read_one(client))["body"].encode() == body


def test_an_upgrade_is_not_made(server: Server) -> None:
    answer = server.ask(
        b"GET /here HTTP/1.1\r\n"
        + HOST
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 ") == 1
    assert told(answer)["PATH_INFO"] == "/here"
    assert b"Connection: close" in answer


def test_an_application_cannot_be_made_to_split_its_answer(server: Server) -> None:
    answer = server.ask(b"GET /splitting HTTP/1.1\r\n" + HOST + b"\r\n")
    assert status_of(answer) == 500
    assert b"X-Injected" not in answer


def test_an_application_that_fails_is_told_as_such_and_no_more(server: Server) -> None:
    answer = server.ask(b"GET /failing HTTP/1.1\r\n" + HOST + b"\r\n")
    assert status_of(answer) == 500
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": True,
        "status": 500,
        "message": "The gateway failed to answer this request",
    }


def test_an_answer_that_is_too_short_ends_the_connection(server: Server) -> None:
    with server.connect() as client:
        client.sendall(b"GET /short HTTP/1.1\r\n" + HOST + b"\r\n")
        assert until_closed(client).endswith(b"\r\n\r\nfour")


def test_a_proxy_is_believed_only_where_the_operator_says_so(server: Server) -> None:
    request = b"GET / HTTP/1.1\r\n" + HOST + b"X-Forwarded-Proto: https\r\n\r\n"
    assert told(server.ask(request))["wsgi.url_scheme"] == "http"
    with serving("--forwarded-allow-ips", "127.0.0.0/8") as trusting:
        assert told(trusting.ask(request))["wsgi.url_scheme"] == "https"


def test_a_busy_client_does_not_keep_others_waiting(server: Server) -> None:
    many = (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * 3000
    with server.connect() as busy, server.connect() as other:
        threading.Thread(target=lambda: busy.sendall(many), daemon=True).start()
        busy.recv(1)
        other.sendall(b"GET /other HTTP/1.1\r\n" + HOST + b"\r\n")
        assert told(read_one(other))["PATH_INFO"] == "/other"
        busy.setblocking(False)
        left = 0
        try:
            while data := busy.recv(1 << 20):
                left += data.count(b"HTTP/1.1 200")
        except BlockingIOError:
            pass
    assert left < 3000


def test_a_stop_finishes_what_was_begun_and_lets_idle_connections_go() -> None:
    with serving() as one:
        idle, busy = one.connect(), one.connect()
        idle.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        read_one(idle)
        one.hold(busy)
        import os

        os.kill(one.pid, signal.SIGTERM)
        assert until_closed(idle) == b""
        one.release()
        answer = until_closed(busy)
        assert status_of(answer) == 200
        assert b"Connection: close" in answer
        idle.close()
        busy.close()


def test_an_idle_connection_is_let_go_after_its_time() -> None:
    with serving("--keep-alive", "1") as one, one.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        read_one(client)
        assert until_closed(client) == b""


def test_a_worker_that_has_served_its_number_hands_over() -> None:
    with serving("--max-requests", "3") as one:
        for number in range(12):
            assert told(one.ask(b"GET /%d HTTP/1.1\r\n%b\r\n" % (number, HOST)))["PATH_INFO"] == f"/{number}"


def test_a_thread_that_computes_lets_the_event_loop_go_on_soon(server: Server) -> None:
    answer = server.ask(b"GET /switch-interval HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.endswith(b"\r\n\r\n0.0005")
