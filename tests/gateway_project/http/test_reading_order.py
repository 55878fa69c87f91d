"""Whose connection is read first, and for how long in each turn: on an event loop and by a clock of the tests' own."""

from __future__ import annotations

from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from gateway_project.http.reading_order import ReadingOrder
from tests.gateway_project.http.test_admission_control import Watcher

# Seconds that reading and refusing a request takes; sums of it are exact.
WORK = 1 / 2048


class Worker:
    """A worker with a virtual clock: whose requests were read, in which turn."""

    def __init__(self) -> None:
        self.now, self.turn = 0.0, 0
        self.loop = self
        self.read: list[tuple[str, int]] = []
        self._main = getcurrent()
        self._turn_begins, self._turn_ends = Watcher(), Watcher()
        self.order = ReadingOrder(lambda: self.now, self)

    def check(self, **_: Any) -> Watcher:
        return self._turn_begins

    def timer(self, *_: Any, **__: Any) -> Watcher:
        return self._turn_ends

    def switch(self) -> Any:
        return self._main.switch()

    def arrive(self, address: str, times: int = 1) -> list[greenlet]:
        """Let something arrive on so many connections."""
        readers = [greenlet(self._read) for _ in range(times)]
        for reader in readers:
            reader.switch(address)
        return readers

    def _read(self, address: str) -> None:
        self.order.wait(address)
        self.now += WORK
        self.read.append((address, self.turn))

    def begin_turn(self) -> None:
        self.turn += 1
        assert self._turn_begins.call is not None
        self._turn_begins.call()

    def end_turn(self) -> None:
        if self._turn_ends.call is not None:
            self._turn_ends.call()

    def read_in(self, turn: int) -> list[str]:
        return [address for address, when in self.read if when == turn]


def test_what_arrives_in_a_short_turn_is_read_at_once() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.arrive("a", 20)
    assert worker.read_in(1) == ["a"] * 20
    assert worker.order.waiting == 0


def test_a_flood_is_read_in_pieces() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.arrive("flood", 1000)
    # Ten milliseconds of the turn, and its share after that.
    assert len(worker.read_in(1)) == 21
    assert worker.order.is_crowded()
    worker.end_turn()
    assert len(worker.read_in(1)) == 21 + 21
    worker.begin_turn()
    worker.end_turn()
    assert len(worker.read_in(2)) == 21
    assert worker.order.waiting == 1000 - 63


def test_who_comes_behind_a_flood_is_read_in_its_turn() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.arrive("flood", 1000)
    worker.arrive("bystander")
    worker.end_turn()
    assert worker.read_in(1)[21:23] == ["flood", "bystander"]


def test_each_address_is_read_in_every_turn_however_long_a_reading_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    worker.begin_turn()
    worker.now += 1
    for address in "abc":
        worker.arrive(address, 2)
    monkeypatch.setitem(globals(), "WORK", 1.0)
    worker.end_turn()
    assert worker.read_in(1) == ["a", "b", "c"]
    worker.begin_turn()
    worker.end_turn()
    assert worker.read_in(2) == ["a", "b", "c"]


def test_a_connection_that_is_ended_while_it_waits_is_passed_over() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.now += 1
    ended, kept = worker.arrive("a", 2)
    with pytest.raises(ConnectionError):
        ended.throw(ConnectionError)
    worker.end_turn()
    assert worker.read_in(1) == ["a"]
    assert kept.dead
    assert worker.order.waiting == 0
