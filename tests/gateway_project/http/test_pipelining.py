"""Clients that send requests without waiting for answers: each has its turn, and the loop looks at others first."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import gevent
import gevent.socket
import pytest

from gateway_project.http.connection import ClientConnection
from gateway_project.http.connection_table import ConnectionTable, Idle
from gateway_project.http.request_parser import RequestParser
from tests.gateway_project.http.conftest import Server, until_closed
from tests.gateway_project.http.test_http import HOST, read_one, told
from tests.support.connections import settings

MANY, SOME = 2_000, 700


@pytest.mark.parametrize("path", [b"/livez", b"/?skip=redis,database", b"/metrics", b"/v1/nowhere", b"/robots.txt"])
def test_a_turn_of_the_loop_answers_each_connection_once_or_twice(server: Server, path: bytes) -> None:
    with server.connect() as one, server.connect() as two, server.connect() as other:
        for client in (one, two):
            client.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            read_one(client)
        other.sendall(b"GET /most-in-a-turn?anew HTTP/1.1\r\n" + HOST + b"\r\n")
        read_one(other)
        request = b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"
        last = b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
        with ThreadPoolExecutor(4) as pool:
            sending = [pool.submit(client.sendall, request * (MANY - 1) + last) for client in (one, two)]
            reading = [pool.submit(until_closed, client) for client in (one, two)]
            for sent in sending:
                sent.result(60)
            for answers in reading:
                assert answers.result(60).count(b"HTTP/1.1 200 OK\r\n") == MANY
        other.sendall(b"GET /most-in-a-turn HTTP/1.1\r\n" + HOST + b"\r\n")
        seen = told(read_one(other))
    # As one that becomes readable, and as one whose turn has come.
    assert seen["most"] <= 2 * 2
    assert seen["answered"] == 2 * MANY


def test_requests_are_answered_in_their_order(server: Server) -> None:
    requests = [b"GET /%d HTTP/1.1\r\n%b\r\n" % (number, HOST) for number in range(300)]
    answers = server.ask(b"".join(requests), answers=300).split(b"HTTP/1.1 200 OK")[1:]
    paths = [json.loads(answer.partition(b"\r\n\r\n")[2])["PATH_INFO"] for answer in answers]
    assert paths == [f"/{number}" for number in range(300)]


def test_bodies_that_look_like_requests_are_bodies(server: Server) -> None:
    line = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    for framing, body in (
        (b"Content-Length: %d\r\n" % len(line * 900), line * 900),
        (b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(line * 900), line * 900)),
    ):
        post = b"POST /told HTTP/1.1\r\n" + HOST + framing + b"\r\n" + body
        both = server.ask(post + b"GET /behind HTTP/1.1\r\n" + HOST + b"\r\n", answers=2)
        answers = both.split(b"HTTP/1.1 200 OK")[1:]
        bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
        assert [told_["PATH_INFO"] for told_ in bodies] == ["/told", "/behind"]
        assert bodies[0]["body"].encode() == line * 900


def test_few_of_very_many_requests_are_parsed_before_the_first_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[int]()
    feed = RequestParser.feed

    def counting(self: RequestParser, data: bytes) -> None:
        feed(self, data)
        parsed.append(len(self.requests))

    monkeypatch.setattr(RequestParser, "feed", counting)
    ours, theirs = gevent.socket.socketpair()
    request = b"GET / HTTP/1.1\r\nHost:\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"
    table = ConnectionTable(99, 99, 9.0, 9.0)

    def serve() -> None:
        with ours:
            ClientConnection(settings(), ours, "", lambda: False).serve(Idle(table, "one"), lambda: None)

    serving = gevent.spawn(serve)
    with theirs:
        reading = gevent.spawn(until_closed, theirs)
        theirs.sendall(request * (SOME - 1) + last)
        assert reading.get(timeout=60).count(b"HTTP/1.1 200 OK\r\n") == SOME
        serving.get(timeout=60)
    # The requests of 4,096 bytes, and one that the piece before had begun.
    assert max(parsed) <= 4_096 // len(request) + 2
