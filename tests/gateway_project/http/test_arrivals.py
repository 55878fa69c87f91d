"""What tells that connections have become readable: at once, and while load is shed every few milliseconds together."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gevent
import pytest

from gateway_project.http.arrivals import BETWEEN_LOOKS, Arrivals, PolledArrivals, WatchedArrivals

KINDS = [PolledArrivals, WatchedArrivals]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[Callable[[], Pair]]:
    made: list[Pair] = []

    def make() -> Pair:
        made.append(socket.socketpair())
        return made[-1]

    yield make
    for ours, theirs in made:
        ours.close()
        theirs.close()


def _arrivals(kind: Any, is_shedding: Callable[[], bool] = lambda: False) -> Arrivals:
    made: Arrivals = kind(gevent.get_hub(), is_shedding)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_something_to_read_is_told_once(kind: Any, pairs: Callable[[], Pair]) -> None:
    arrivals, told = _arrivals(kind), list[str]()
    (first, sends), (second, _) = pairs(), pairs()
    arrivals.expect(first.fileno(), lambda: told.append("first"))
    arrivals.expect(second.fileno(), lambda: told.append("second"))
    sends.send(b"x")
    gevent.sleep(0.02)
    assert told == ["first"]
    # What has not been read is told of again once somebody waits again.
    arrivals.expect(first.fileno(), lambda: told.append("again"))
    gevent.sleep(0.02)
    assert told == ["first", "again"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_something_to_read(kind: Any, pairs: Callable[[], Pair]) -> None:
    arrivals, told = _arrivals(kind), list[str]()
    ours, theirs = pairs()
    arrivals.expect(ours.fileno(), lambda: told.append("end"))
    theirs.close()
    gevent.sleep(0.02)
    assert told == ["end"]


@pytest.mark.parametrize("kind", KINDS)
def test_who_does_not_wait_any_more_is_not_told(kind: Any, pairs: Callable[[], Pair]) -> None:
    arrivals, told = _arrivals(kind), list[str]()
    ours, theirs = pairs()
    arrivals.expect(ours.fileno(), lambda: told.append("gone"))
    arrivals.forget(ours.fileno())
    arrivals.forget(ours.fileno())
    theirs.send(b"x")
    gevent.sleep(0.02)
    assert told == []
    arrivals.expect(ours.fileno(), lambda: told.append("back"))
    gevent.sleep(0.02)
    assert told == ["back"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_descriptor_that_another_connection_has_now_is_told_of(kind: Any, pairs: Callable[[], Pair]) -> None:
    arrivals, told = _arrivals(kind), list[str]()
    ours, theirs = pairs()
    descriptor = ours.fileno()
    arrivals.expect(descriptor, lambda: told.append("old"))
    theirs.send(b"x")
    gevent.sleep(0.02)
    ours.close()
    ours, theirs = pairs()
    assert ours.fileno() == descriptor
    arrivals.expect(descriptor, lambda: told.append("new"))
    theirs.send(b"x")
    gevent.sleep(0.02)
    assert told == ["old", "new"]


class Hub:
    """The event loop, with a timer that is over when the test says so."""

    def __init__(self) -> None:
        self.loop = self
        self.seconds = 0.0
        self.look: Callable[[], None] | None = None

    def io(self, *watched: Any) -> Any:
        return gevent.get_hub().loop.io(*watched)

    def timer(self, seconds: float) -> Hub:
        self.seconds = seconds
        return self

    def start(self, look: Callable[[], None]) -> None:
        self.look = look


def test_while_load_is_shed_what_comes_is_looked_for_together(pairs: Callable[[], Pair]) -> None:
    hub, shedding, told = Hub(), [True], list[int]()
    arrivals = PolledArrivals(hub, lambda: shedding[0])
    several = [pairs() for _ in range(4)]

    def expect(*numbers: int) -> None:
        for number in numbers:
            arrivals.expect(several[number][0].fileno(), partial(told.append, number))

    def send(*numbers: int) -> None:
        for number in numbers:
            several[number][1].send(b"x")
            gevent.sleep(0.005)

    expect(0, 1, 2, 3)
    # The first is told at once: nobody has looked since load is shed.
    send(0)
    assert told == [0]
    send(1, 2)
    assert told == [0]
    assert hub.look is not None
    assert hub.seconds == BETWEEN_LOOKS
    hub.look()
    assert sorted(told) == [0, 1, 2]
    send(3)
    assert sorted(told) == [0, 1, 2]
    # At the end of shedding, once more by the timer, and then as they come.
    shedding[0] = False
    hub.look()
    assert sorted(told) == [0, 1, 2, 3]
    hub.look = None
    told.clear()
    expect(0, 1)
    assert told == []
    gevent.sleep(0.02)
    assert sorted(told) == [0, 1]
    assert hub.look is None
