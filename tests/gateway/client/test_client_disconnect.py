"""Clients that leave while a provider is being waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import gevent
import pytest
from gevent import monkey

from apps.gateway.client.client_disconnect import POLL_SECONDS, ClientDisconnect, DisconnectPoller
from apps.kernel.errors import ClientGone
from tests.support.hanging_names import wait_until


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
    waiting = [gevent.spawn(wait, client_disconnect, 60.0) for _ in range(2)]
    wait_until(lambda: len(client_disconnect._waiting) == 2)
    pair[1].close()
    assert [one.get(timeout=30) for one in waiting] == ["gone", "gone"]
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
    wait_until(lambda: not poller.is_polling)
    # After a pause it is looked at as before.
    poller.watch(client_disconnect, pair[0])
    pair[1].close()
    wait_until(lambda: poller.clients == {})
    assert states == [False, True]
    assert wait(client_disconnect) == "gone"


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
        wait_until(lambda: staying._waiting and leaving._waiting)
        pair[1].close()
        assert [one.get(timeout=2) for one in waiting] == ["waited", "gone"]


def test_the_end_of_a_second_watch_of_a_connection_leaves_the_first(pair: tuple[socket.socket, socket.socket]) -> None:
    whole, turn = ClientDisconnect(pair[0]), ClientDisconnect(pair[0])
    assert wait(whole, 1.5 * POLL_SECONDS) == "waited"
    assert wait(turn, 1.5 * POLL_SECONDS) == "waited"
    turn.close()
    waiting = gevent.spawn(wait, whole)
    gevent.sleep(1.5 * POLL_SECONDS)
    pair[1].close()
    assert waiting.get(timeout=2) == "gone"


def test_a_socket_that_was_closed_here_blinds_no_watch_of_its_descriptor(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = socket.socketpair()
    assert wait(ClientDisconnect(ours), 1.5 * POLL_SECONDS) == "waited"
    descriptor = ours.fileno()
    ours.close()
    again = socket.socket(fileno=os.dup2(pair[0].fileno(), descriptor))
    waiting = [gevent.spawn(wait, ClientDisconnect(one)) for one in (again, pair[0])]
    gevent.sleep(1.5 * POLL_SECONDS)
    pair[1].close()
    assert [one.get(timeout=2) for one in waiting] == ["gone", "gone"]
    again.close()
    theirs.close()


def test_a_client_is_registered_once_and_forgotten_with_its_request() -> None:
    poller, kernel = DisconnectPoller(gevent.get_hub()), CountedPoll()
    poller._kernel = kernel
    pairs = [socket.socketpair() for _ in range(3)]
    short, *long = [ClientDisconnect(ours) for ours, _ in pairs]
    for client_disconnect, (ours, _) in zip((short, *long), pairs, strict=True):
        poller.watch(client_disconnect, ours)
    poller.forget(short)
    wait_until(lambda: kernel.polls >= 3)
    descriptors = [ours.fileno() for ours, _ in pairs]
    assert kernel.registered == descriptors[1:]
    poller.forget(long[0])
    assert kernel.unregistered == descriptors[1:2]
    pairs[2][1].close()
    wait_until(lambda: not poller.is_polling)
    assert (kernel.unregistered, poller.clients) == (descriptors[1:], {})
    for pair in pairs:
        for sock in pair:
            sock.close()


class CountedPoll:
    """The kernel's poll, and what it was asked."""

    def __init__(self) -> None:
        self.registered: list[int] = []
        self.unregistered: list[int] = []
        self.polls = 0
        self._poll = monkey.get_original("select", "poll")()

    def register(self, descriptor: int, events: int) -> None:
        """Poll a descriptor from now on."""
        self.registered.append(descriptor)
        self._poll.register(descriptor, events)

    def unregister(self, descriptor: int) -> None:
        """Poll a descriptor no longer."""
        self.unregistered.append(descriptor)
        self._poll.unregister(descriptor)

    def poll(self, patience: int) -> list[tuple[int, int]]:
        """Return the descriptors with events."""
        self.polls += 1
        return list(self._poll.poll(patience))
