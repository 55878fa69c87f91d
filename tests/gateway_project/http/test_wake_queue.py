"""Connections that become readable at once go on a few each turn of the event loop, in rotation by client."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gevent
import pytest

from apps.kernel.concurrency.green_socket import watch_readable
from apps.kernel.concurrency.turn_queue import MAX_SECONDS
from gateway_project.http.connection import ClientConnection
from gateway_project.http.connection_table import ConnectionTable, Idle, WakeQueue
from tests.support.connections import settings

# As many go on in one turn by this clock.
EACH = 8
MANY = 5 * EACH


class Clock:
    """One by which it takes a part of the time of a turn to wake a connection."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_some(self) -> None:
        """Let the time pass that waking a connection takes."""
        self.now += MAX_SECONDS / (EACH - 0.5)


class Waiters:
    """Greenlets that each wait for their end of a pair of sockets; whom it woke, and in which turn of the loop."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.queue = WakeQueue(self.clock)
        self.told: list[str] = []
        self.woken: list[tuple[str, int]] = []
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.greenlets: list[Any] = []

    def add(self, client: str, count: int) -> None:
        """Let so many of a client wait."""
        for _ in range(count):
            ours, theirs = socket.socketpair()
            self.pairs.append((ours, theirs))
            self.greenlets.append(gevent.spawn(self._wait, ours, client))
        gevent.sleep(0)

    def _wait(self, ours: socket.socket, client: str) -> None:
        readable = watch_readable(ours)
        with suppress(gevent.GreenletExit):
            self.queue.wait(readable, client, lambda: self.told.append(client))
            self.clock.pass_some()
            self.woken.append((client, gevent.get_hub().loop.iteration))
            ours.recv(1)
        readable.close()

    def send_to_all(self) -> None:
        """Make all of them readable before the loop looks again."""
        for _, theirs in self.pairs:
            theirs.send(b"x")

    def finish(self) -> None:
        """Wait until all have gone on. Raises gevent.Timeout."""
        with gevent.Timeout(5):
            gevent.joinall(self.greenlets)


@pytest.fixture
def waiters() -> Iterator[Waiters]:
    waiters = Waiters()
    yield waiters
    gevent.killall(waiters.greenlets)
    for pair in waiters.pairs:
        for sock in pair:
            sock.close()


def test_a_turn_of_the_loop_wakes_a_few(waiters: Waiters) -> None:
    waiters.add("many", MANY)
    waiters.send_to_all()
    waiters.finish()
    assert len(waiters.woken) == MANY
    turns = Counter(turn for _, turn in waiters.woken)
    assert max(turns.values()) == EACH
    assert len(turns) == MANY // EACH


def test_another_client_is_woken_in_the_next_turn(waiters: Waiters) -> None:
    waiters.add("many", MANY)
    waiters.add("other", 1)
    waiters.send_to_all()
    waiters.finish()
    first = min(turn for _, turn in waiters.woken)
    assert dict(waiters.woken)["other"] <= first + 1
    assert max(turn for _, turn in waiters.woken) > first + 3


def test_all_are_told_at_once_that_something_has_come(waiters: Waiters) -> None:
    waiters.add("many", MANY)
    waiters.send_to_all()
    while not waiters.woken:
        gevent.sleep(0)
    assert len(waiters.told) == MANY
    assert len(waiters.woken) < MANY


def test_who_is_interrupted_while_its_turn_has_not_come_is_not_woken(waiters: Waiters) -> None:
    waiters.add("many", MANY)
    waiters.send_to_all()
    while not waiters.woken:
        gevent.sleep(0)
    waiting = [greenlet for greenlet in waiters.greenlets if not greenlet.dead]
    assert 0 < len(waiting) < MANY
    gevent.kill(waiting[0])
    waiters.finish()
    assert len(waiters.told) == MANY
    assert len(waiters.woken) == MANY - 1


def test_who_waits_again_is_woken_again(waiters: Waiters) -> None:
    ours, theirs = socket.socketpair()
    readable = watch_readable(ours)
    with ours, theirs, gevent.Timeout(5):
        for number in range(3):
            gevent.spawn(theirs.send, b"x")
            waiters.queue.wait(readable, "one", lambda: None)
            assert ours.recv(1) == b"x", number
    readable.close()


def test_connections_wait_for_their_turns() -> None:
    clock, turns = Clock(), list[int]()
    table = ConnectionTable(99, 99, 9.0, 9.0)
    table.wake_queue = WakeQueue(clock)
    pairs = [socket.socketpair() for _ in range(MANY)]

    def serve(ours: socket.socket) -> None:
        with ours:
            ClientConnection(settings(), ours, "", lambda: False).serve(Idle(table, "many"), served)

    def served() -> None:
        clock.pass_some()
        turns.append(gevent.get_hub().loop.iteration)

    serving = [gevent.spawn(serve, ours) for ours, _ in pairs]
    gevent.sleep(0)
    for _, theirs in pairs:
        theirs.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    gevent.joinall(serving, timeout=5, raise_error=True)
    for _, theirs in pairs:
        assert theirs.recv(1_000).endswith(b"\r\n\r\nok")
        theirs.close()
    assert len(turns) == MANY
    assert max(Counter(turns).values()) == EACH
