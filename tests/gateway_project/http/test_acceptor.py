"""How many connections a worker takes at a time, of those that wait in the system's queue."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
from gevent.server import StreamServer

from gateway_project.http.acceptor import Acceptor, count_queued

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how many wait")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that listens, and from which nobody accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as sock:
        yield sock


def connected(listener: socket.socket, count: int) -> list[socket.socket]:
    return [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(count)]


@pytest.mark.parametrize(
    ("queued", "workers", "share"),
    [(0, 2, 1), (1, 2, 1), (2, 2, 1), (3, 2, 2), (21, 2, 11), (150, 2, 32), (5, 1, 5)],
)
def test_a_worker_accepts_its_share_of_those_that_wait(
    listener: socket.socket, queued: int, workers: int, share: int
) -> None:
    clients = connected(listener, queued)
    assert count_queued(listener) == queued
    assert Acceptor(listener, workers, handle=print).max_accept == share
    for client in clients:
        client.close()


def test_where_the_system_does_not_tell_one_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert count_queued(other) == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        assert Acceptor(sock, 2, handle=print).max_accept == 1


def test_a_flood_of_connections_does_not_stand_in_the_queue_for_as_many_turns(listener: socket.socket) -> None:
    clients, taken = connected(listener, 100), []
    acceptor = Acceptor(listener, 1, handle=print, spawn=lambda *given: taken.append(given[-1][0]))
    listener.setblocking(False)
    assert isinstance(acceptor, StreamServer)
    acceptor.init_socket()
    for _ in range(4):
        acceptor._do_read()
    assert len(taken) == 100
    for sock in (*clients, *taken):
        sock.close()
