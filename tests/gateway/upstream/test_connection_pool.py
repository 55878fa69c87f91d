"""The socket client, against servers that do exactly what a test says."""
# length: one module, and each way in which a connection ends.

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse
from tests.stack.product import eventually

BUDGET = Timeouts(connect=1, first_byte=1, idle=1, total=5, tick=1)
ZIPPED = gzip.compress(b"hi")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@contextmanager
def server(*talks: Callable[[socket.socket, bytes], None]) -> Iterator[tuple[str, list[bytes]]]:
    """Serve connections one after another; each talk gets the socket and the first request's bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        for talk in talks:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(65536)
                requests.append(request)
                talk(connection, request)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat?x=1", requests
        thread.join(5)
        assert not thread.is_alive()
    finally:
        listener.close()
        connection_pool.close_idle()


def says(*pieces: bytes, pause: float = 0.0) -> Callable[[socket.socket, bytes], None]:
    """Return a talk that sends these pieces and closes."""

    def talk(connection: socket.socket, request: bytes) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)

    return talk


def send(url: str, headers: dict[str, str], body: bytes, budget: Timeouts) -> UpstreamResponse:
    """Return the exchange once its head is there."""
    sending = connection_pool.send("POST", url, headers, body, budget)
    while True:
        try:
            next(sending)
        except StopIteration as done:
            exchange: UpstreamResponse = done.value
            return exchange


def post(url: str, budget: Timeouts = BUDGET, body: bytes = b"{}") -> bytes:
    """Return the whole body of an answer."""
    exchange = send(url, {"Authorization": "Bearer x"}, body, budget)
    try:
        return exchange.read(1000)
    finally:
        exchange.close()


def test_the_request_is_written_exactly() -> None:
    with server(says(OK)) as (url, requests):
        assert post(url, body=b'{"a":1}') == b"hi"
    host = url.split("/")[2].encode()
    assert requests == [
        b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: " + host + b"\r\nAccept-Encoding: identity\r\nContent-Length: 7\r\n"
        b"Authorization: Bearer x\r\n\r\n" + b'{"a":1}'
    ]


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhi",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(ZIPPED), ZIPPED),
    ],
    ids=["length", "chunked", "until closed", "after 100", "gzip"],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_bodies_arrive_however_they_are_framed(answer: bytes, bytewise: bool) -> None:
    pieces = [bytes([byte]) for byte in answer] if bytewise else [answer]
    with server(says(*pieces)) as (url, _):
        assert post(url) == b"hi"


def test_a_kept_connection_is_used_again() -> None:
    def twice(connection: socket.socket, request: bytes) -> None:
        connection.sendall(OK)
        connection.recv(65536)
        connection.sendall(OK)

    with server(twice) as (url, requests):
        assert [post(url), post(url)] == [b"hi", b"hi"]
    assert len(requests) == 1


def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    with server(says(OK), says(OK)) as (url, requests):
        assert post(url) == b"hi"
        pools = connection_pool._pools.by_address
        [kept] = next(pool for address, pool in pools.items() if f":{address.port}/" in url)
        eventually(lambda: kept.is_readable)
        assert post(url) == b"hi"
    assert len(requests) == 2


def test_a_kept_connection_that_had_been_closed_is_told_and_not_replaced_unasked() -> None:
    def then_dies(connection: socket.socket, request: bytes) -> None:
        connection.sendall(OK)
        connection.recv(65536)

    with server(then_dies, says(OK)) as (url, requests):
        assert post(url) == b"hi"
        with pytest.raises(StaleConnection) as caught:
            post(url)
        assert (caught.value.error_type, caught.value.status, caught.value.retryable) == ("network", None, True)
        assert len(requests) == 1
        assert post(url) == b"hi"
    assert len(requests) == 2


def test_a_request_that_was_read_is_never_sent_again() -> None:
    def reads_and_dies_later(connection: socket.socket, request: bytes) -> None:
        connection.sendall(OK)
        connection.recv(65536)
        time.sleep(0.6)

    with server(reads_and_dies_later) as (url, requests):
        assert post(url) == b"hi"
        with pytest.raises(UpstreamFailure) as caught:
            post(url)
        assert not isinstance(caught.value, StaleConnection)
        assert caught.value.message == "the connection was closed before the answer was complete"
        assert len(requests) == 1


def test_a_fresh_connection_is_opened_though_one_is_kept() -> None:
    with server(says(OK), says(OK)) as (url, requests):
        assert post(url) == b"hi"
        sending = connection_pool.send("POST", url, {}, b"", BUDGET, new_connection=True)
        with pytest.raises(StopIteration) as done:
            next(sending)
        done.value.value.close()
    assert len(requests) == 2


def test_only_a_new_connection_has_times_and_a_failed_one_no_end() -> None:
    def twice(connection: socket.socket, request: bytes) -> None:
        connection.sendall(OK)
        connection.recv(65536)
        connection.sendall(OK)

    times: list[tuple[float, float | None]] = []

    def note(started_at: float, connected_at: float | None) -> None:
        times.append((started_at, connected_at))

    def ask(url: str) -> None:
        sending = connection_pool.send("POST", url, {}, b"", BUDGET, on_connect=note)
        with pytest.raises(StopIteration) as done:
            next(sending)
        assert done.value.value.read(1000) == b"hi"
        done.value.value.close()

    began = time.monotonic()
    with server(twice) as (url, _):
        ask(url)
        ask(url)
    [(started_at, connected_at)] = times
    assert connected_at is not None
    assert began <= started_at <= connected_at <= time.monotonic()
    with pytest.raises(UpstreamFailure, match="the connection was refused"):
        next(connection_pool.send("POST", url, {}, b"", BUDGET, on_connect=note))
    assert [one[1] is None for one in times] == [False, True]


def test_an_unread_answer_closes_its_connection() -> None:
    closed = threading.Event()

    def endless(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n")
        connection.settimeout(2)
        assert connection.recv(1) == b""
        closed.set()

    with server(endless) as (url, _):
        exchange = send(url, {}, b"", BUDGET)
        assert next(exchange.iterate_body()) == b"h"
        exchange.close()
        assert closed.wait(1)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "the connection was closed before the answer was complete"),
        (
            [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"],
            "the connection was closed before the answer was complete",
        ),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"],
            "the connection was closed before the answer was complete",
        ),
        ([b"SMTP ready\r\n\r\n"], "the answer is not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000], "the answer is longer than 1000 bytes"),
    ],
    ids=["nothing", "short", "cut", "nonsense", "too long"],
)
def test_a_broken_answer_is_a_network_failure(pieces: list[bytes], message: str) -> None:
    with server(says(*pieces)) as (url, _), pytest.raises(UpstreamFailure) as caught:
        post(url)
    assert (caught.value.error_type, caught.value.message, caught.value.retryable) == ("network", message, True)


@pytest.mark.parametrize(
    ("budget", "pieces", "message"),
    [
        (replace(BUDGET, first_byte=0.1), [b""], "no first byte within 0.1 s"),
        (
            replace(BUDGET, idle=0.1),
            [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b""],
            "silent for 0.1 s",
        ),
        (
            replace(BUDGET, total=0.2),
            [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", *[b"x"] * 9],
            "the whole answer took longer than 0.2 s",
        ),
    ],
    ids=["first byte", "idle", "total"],
)
def test_every_wait_has_its_budget(budget: Timeouts, pieces: list[bytes], message: str) -> None:
    def slow(connection: socket.socket, request: bytes) -> None:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                return
            time.sleep(0.08 if len(pieces) > 2 else 0.4)

    started = time.monotonic()
    with server(slow) as (url, _), pytest.raises(UpstreamFailure) as caught:
        post(url, budget)
    assert (caught.value.error_type, caught.value.message) == ("timeout", message)
    assert time.monotonic() - started < 15


def test_silence_ticks() -> None:
    def slow(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh")
        time.sleep(0.25)
        connection.sendall(b"i")

    with server(slow) as (url, _):
        exchange = send(url, {}, b"", replace(BUDGET, tick=0.1))
        assert list(exchange.iterate_body()) == [b"h", b"", b"", b"i"]
        exchange.close()


def test_silence_before_the_head_ticks_too() -> None:
    def slow(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.25)
        connection.sendall(OK)

    with server(slow) as (url, _):
        sending = connection_pool.send("POST", url, {}, b"", replace(BUDGET, tick=0.1))
        assert [next(sending), next(sending)] == [None, None]
        with pytest.raises(StopIteration) as done:
            next(sending)
        done.value.value.close()


def test_nobody_listening_is_a_network_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UpstreamFailure) as caught:
        post(f"http://127.0.0.1:{port}/")
    assert (caught.value.error_type, caught.value.message) == ("network", "the connection was refused")


def test_a_thread_uses_no_connection_that_another_thread_keeps() -> None:
    """The part that waits for a connection's answer belongs to the event loop of the thread that made it."""

    open_still: list[socket.socket] = []
    answers: list[bytes] = []

    def answers_and_stays(connection: socket.socket, request: bytes) -> None:
        open_still.append(connection.dup())
        connection.sendall(OK)

    def ask() -> None:
        answers.append(post(url))

    with server(answers_and_stays, answers_and_stays) as (url, requests):
        ask()
        elsewhere = threading.Thread(target=ask)
        elsewhere.start()
        elsewhere.join(5)
    assert (answers, len(requests)) == ([b"hi", b"hi"], 2)
    for connection in open_still:
        connection.close()


def test_a_header_cannot_break_out_of_its_line() -> None:
    with pytest.raises(UpstreamFailure, match="line break"):
        send("http://127.0.0.1:9/", {"Authorization": "Bearer x\r\nX-Evil: 1"}, b"", BUDGET)


def test_any_number_of_urls_takes_bounded_room() -> None:
    for number in range(5_000):
        connection_pool.split_url(f"https://host-{number}.example/v1/chat/completions", "93.184.215.14")
    assert connection_pool.split_url.cache_info().currsize == 4_096


def test_any_number_of_addresses_takes_bounded_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that tenants' servers keep open are not kept for ever."""
    connection_pool.close_idle()
    connection_pool._pools.by_address.clear()
    monkeypatch.setattr(connection_pool, "_MAX_POOLS", 2)
    closed: list[int] = []

    class Kept:
        idle_since = 0.0

        def __init__(self, number: int) -> None:
            self.number = number

        def close(self) -> None:
            closed.append(self.number)

    places = [connection_pool.PoolKey(f"host-{number}", 443, True) for number in range(4)]
    for number in range(3):
        connection_pool._release(places[number], Kept(number))  # type: ignore[arg-type]  # a fake socket
    assert closed == [0], "all were used lately: the oldest goes"
    for address in places[1:3]:
        connection_pool._pools.by_address[address][-1].idle_since -= 60
    connection_pool._release(places[3], Kept(3))  # type: ignore[arg-type]  # a fake socket
    assert (closed, list(connection_pool._pools.by_address)) == ([0, 1, 2], [places[3]])
    connection_pool._pools.by_address.clear()
