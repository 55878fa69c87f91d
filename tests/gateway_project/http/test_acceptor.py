"""How many connections a worker takes at a time, of those that wait in the system's queue."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import gevent
import pytest
from gevent.server import StreamServer

from gateway_project.http.acceptor import Acceptor, count_queued

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how many wait")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens, and from which no process accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as sock:
        yield sock


def connected(listener: socket.socket, count: int) -> list[socket.socket]:
    return [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(count)]


@pytest.mark.parametrize(
    ("queued", "workers", "share"),
    [(0, 2, 1), (1, 2, 1), (2, 2, 1), (3, 2, 2), (21, 2, 11), (150, 2, 75), (5, 1, 5)],
)
def test_a_worker_accepts_its_share_of_those_that_wait(
    listener: socket.socket, queued: int, workers: int, share: int
) -> None:
    clients = connected(listener, queued)
    assert count_queued(listener) == queued
    assert Acceptor(listener, workers, host_of, handle=print).max_accept == share
    for client in clients:
        client.close()


def test_where_the_system_does_not_tell_one_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert count_queued(other) == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert Acceptor(sock, 2, host_of, handle=print).max_accept == 1


class Served:
    """An acceptor of one worker that tells whom it begins to serve; `turn` is a turn of the event loop."""

    def __init__(self, listener: socket.socket) -> None:
        self.begun: list[tuple[str, int]] = []
        self._taken: list[socket.socket] = []
        listener.setblocking(False)
        self.acceptor: Any = Acceptor(listener, 1, host_of, handle=print, spawn=self._begin)
        assert isinstance(self.acceptor, StreamServer)
        self.acceptor.init_socket()

    def _begin(self, *given: Any) -> None:
        sock, address = given[-1]
        self._taken.append(sock)
        self.begun.append(address)

    def turn(self) -> int:
        """Take who waits, and let the loop turn once; return how many it began to serve."""
        before = len(self.begun)
        self.acceptor._do_read()
        gevent.get_hub().loop.run_callback(lambda: None)
        gevent.sleep(0.0011)
        return len(self.begun) - before

    def close(self) -> None:
        """Close all connections that were begun."""
        for sock in self._taken:
            sock.close()


def host_of(address: tuple[str, int]) -> str:
    """Return whose an address is."""
    return address[0]


@pytest.fixture
def served(listener: socket.socket) -> Iterator[Served]:
    """An acceptor on the listener."""
    one = Served(listener)
    yield one
    one.close()


def from_host(listener: socket.socket, host: str) -> socket.socket:
    return socket.create_connection(listener.getsockname(), timeout=5, source_address=(host, 0))


def test_a_connection_behind_a_flood_from_another_address_is_served_after_one_of_it(
    listener: socket.socket, served: Served
) -> None:
    flood = [from_host(listener, "127.0.0.2") for _ in range(60)]
    other = from_host(listener, "127.0.0.3")
    served.turn()
    assert [host for host, _ in served.begun[:3]] == ["127.0.0.2", "127.0.0.3", "127.0.0.2"]
    assert served.begun[1] == other.getsockname()
    for client in (*flood, other):
        client.close()


def test_a_flood_is_begun_a_few_each_turn_and_all_of_it_in_the_end(listener: socket.socket, served: Served) -> None:
    clients = connected(listener, 100)
    turns = [served.turn() for _ in range(40)]
    # A turn here may be a few of the loop's, as long as it takes; the first takes all and does not begin all of them.
    assert 8 <= turns[0] <= 32
    assert served.begun == [client.getsockname() for client in clients]
    for client in clients:
        client.close()


def test_too_many_that_wait_stay_in_the_systems_queue(
    listener: socket.socket, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway_project.http.acceptor._MAX_WAITING", 10)
    clients = connected(listener, 30)
    served.acceptor._do_read()
    assert (count_queued(listener), served.begun) == (20, [])
    while served.turn():
        pass
    assert len(served.begun) == 30
    for client in clients:
        client.close()


def test_who_was_accepted_is_served_when_the_worker_stops_accepting(listener: socket.socket, served: Served) -> None:
    clients = connected(listener, 30)
    served.acceptor._do_read()
    assert served.begun == []
    served.acceptor.close()
    assert len(served.begun) == 30
    for client in clients:
        client.close()
