"""Clients that leave while a provider is being waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import gevent
import pytest

from apps.gateway.client.client_disconnect import POLL_SECONDS, ClientDisconnect, DisconnectPoller
from apps.kernel.errors import ClientGone


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our side of a client's connection, and the client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def wait(client_disconnect: ClientDisconnect, seconds: float = 5.0) -> str:
    """Wait as the gateway waits for a provider; return what came of it."""
    try:
        with client_disconnect.raise_while_waiting():
            gevent.sleep(seconds)
    except ClientGone:
        return "gone"
    return "waited"


def test_a_wait_ends_when_the_client_leaves(pair: tuple[socket.socket, socket.socket]) -> None:
    client_disconnect = ClientDisconnect(pair[0])
    waiting = [gevent.spawn(wait, client_disconnect) for _ in range(2)]
    gevent.sleep(0.01)
    pair[1].close()
    started = time.monotonic()
    assert [one.get(timeout=2) for one in waiting] == ["gone", "gone"]
    assert time.monotonic() - started < 10 * POLL_SECONDS
    # Nor does another wait begin.
    assert wait(client_disconnect) == "gone"


def test_a_client_that_stays_or_asks_for_more_is_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    client_disconnect = ClientDisconnect(pair[0])
    pair[1].sendall(b"GET / HTTP/1.1\r\n")
    assert wait(client_disconnect, 2.5 * POLL_SECONDS) == "waited"
    assert pair[0].recv(100) == b"GET / HTTP/1.1\r\n"


def test_nothing_is_looked_at_while_nobody_is_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    client_disconnect, poller = ClientDisconnect(pair[0]), DisconnectPoller(gevent.get_hub())
    states = [poller.is_polling]
    poller.watch(client_disconnect, pair[0])
    states.append(poller.is_polling)
    poller.clients.clear()
    gevent.sleep(2.5 * POLL_SECONDS)
    states.append(poller.is_polling)
    # After a pause it is looked at as before.
    poller.watch(client_disconnect, pair[0])
    pair[1].close()
    gevent.sleep(2.5 * POLL_SECONDS)
    assert states == [False, True, False]
    assert wait(client_disconnect) == "gone"
    assert poller.clients == {}


def test_nobody_is_interrupted_after_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    client_disconnect = ClientDisconnect(pair[0])
    assert wait(client_disconnect, 0.01) == "waited"
    client_disconnect.close()
    pair[1].close()
    assert wait(client_disconnect, 2.5 * POLL_SECONDS) == "waited"


def test_one_that_leaves_interrupts_nobody_else(pair: tuple[socket.socket, socket.socket]) -> None:
    other, theirs = socket.socketpair()
    with other, theirs:
        staying, leaving = ClientDisconnect(other), ClientDisconnect(pair[0])
        waiting = [gevent.spawn(wait, staying, 3 * POLL_SECONDS), gevent.spawn(wait, leaving)]
        gevent.sleep(0.01)
        pair[1].close()
        assert [one.get(timeout=2) for one in waiting] == ["waited", "gone"]
