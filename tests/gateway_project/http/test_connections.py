"""Connections that cost a worker a place: who may have how many, how long they may be idle, and who goes first."""

from __future__ import annotations

from tests.gateway_project.http.conftest import serving, until_closed
from tests.gateway_project.http.test_hostile_clients import push
from tests.gateway_project.http.test_http import HOST, read_one, status_of, told
from tests.stack.product import eventually


def test_a_connection_that_says_nothing_is_closed_after_seconds() -> None:
    with serving(FIRST_BYTE_TIMEOUT="2") as one, one.connect() as silent, one.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert told(read_one(client))["PATH_INFO"] == "/"
        assert until_closed(silent) == b""
        # One that has been served may wait longer.
        client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert told(read_one(client))["PATH_INFO"] == "/"


def test_one_address_has_only_so_many_connections_at_work() -> None:
    with serving(CONNECTIONS_PER_ADDRESS="3") as one:
        busy = [one.connect() for _ in range(3)]
        for client in busy:
            client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status_of(read_one(client)) == 200
        for client in busy:
            one.hold(client)
        with one.connect() as client:
            answer = until_closed(client)
        assert status_of(answer) == 429
        assert b"Connection: close\r\n" in answer
        one.release()
        for client in busy:
            assert status_of(read_one(client)) == 200
            client.close()
        # As soon as the server has noticed a closed connection.
        eventually(lambda: status_of(one.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")) == 200)


def test_an_address_with_too_many_idle_connections_loses_the_oldest() -> None:
    with serving(CONNECTIONS_PER_ADDRESS="3") as one:
        idle = [one.connect() for _ in range(3)]
        for client in idle:
            client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status_of(read_one(client)) == 200
        assert status_of(one.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")) == 200
        assert until_closed(idle[0]) == b""
        for client in idle[1:]:
            client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status_of(read_one(client)) == 200
        for client in idle:
            client.close()


def test_a_trusted_proxy_has_as_many_connections_as_it_likes() -> None:
    with serving("--forwarded-allow-ips", "127.0.0.1", CONNECTIONS_PER_ADDRESS="1") as one:
        clients = [one.connect() for _ in range(5)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status_of(read_one(client)) == 200
            # Left open while the others ask.
        for client in clients:
            client.close()


def test_idle_connections_do_not_lock_anybody_out() -> None:
    with serving(WORKER_CONNECTIONS="64") as one:
        kept = one.connect()
        kept.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        read_one(kept)
        # Several times what the worker takes, and none of them says anything.
        idle = [one.connect() for _ in range(200)]
        assert status_of(one.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")) == 200
        # A client that has been served is not the first to go; the one that came first and was silent is.
        kept.sendall(b"GET /kept HTTP/1.1\r\n" + HOST + b"\r\n")
        assert told(read_one(kept))["PATH_INFO"] == "/kept"
        assert until_closed(idle[0]) == b""
        for client in [kept, *idle]:
            client.close()


def test_connections_whose_heads_do_not_end_do_not_lock_anybody_out() -> None:
    with serving(WORKER_CONNECTIONS="64") as one:
        slow = [one.connect() for _ in range(150)]
        for client in slow:
            push(client, b"GET / HTTP/1.1\r\nX-Slow: ")
        assert status_of(one.ask(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")) == 200
        for client in slow:
            client.close()
