"""Waiting for something to read: told when it is there, when it is not, and as long each time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import gevent
import pytest

from apps.gateway.upstream.http_response import SocketWaiter


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_is_there_or_comes_ends_the_wait(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    readiness = SocketWaiter(ours)
    theirs.send(b"there")
    assert readiness.wait(5) is True
    assert ours.recv(100) == b"there"
    gevent.spawn_later(0.02, theirs.send, b"later")
    assert readiness.wait(5) is True
    assert ours.recv(100) == b"later"
    theirs.close()
    assert readiness.wait(5) is True
    assert ours.recv(100) == b""
    readiness.close()


def test_every_silence_lasts_as_long_as_it_says(pair: tuple[socket.socket, socket.socket]) -> None:
    readiness = SocketWaiter(pair[0])
    for seconds in (0.05, 0.05, 0.05, 0.1, 0.05):
        began = time.monotonic()
        assert readiness.wait(seconds) is False
        assert time.monotonic() - began >= seconds - 0.002
    readiness.close()


def test_who_is_thrown_out_of_a_wait_may_wait_again(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    readiness = SocketWaiter(ours)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.02):
        readiness.wait(5)
    theirs.send(b"x")
    assert readiness.wait(5) is True
    readiness.close()
