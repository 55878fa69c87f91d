"""Requests that wait, start first, or are refused at once: on an event loop and by a clock of the tests' own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from apps.kernel.errors import Overloaded
from gateway_project.http.admission_control import AdmissionControl

# Seconds that reading a request takes, or refusing one.
READING, REFUSING = 0.00005, 0.00005


class Watcher:
    """A watcher of an event loop, which calls when the test says so."""

    call: Callable[[], None] | None = None

    def start(self, call: Callable[[], None]) -> None:
        self.call = call

    def stop(self) -> None:
        self.call = None


class Worker:
    """A worker with a virtual clock: what became of each request of each client, and after how many seconds."""

    def __init__(self, most: int = 100_000, max_wait: float = 2.0) -> None:
        self.now = 0.0
        self.loop = self
        self.outcomes: list[tuple[str, str, float]] = []
        self.cost = 0.0
        # Commands that the store has not answered.
        self.unanswered = 0
        self._main = getcurrent()
        self._turn_begins, self._turn_ends = Watcher(), Watcher()
        self.control = AdmissionControl(most, max_wait, lambda: self.now, self, lambda: self.unanswered)

    def check(self, **_: Any) -> Watcher:
        return self._turn_begins

    def timer(self, *_: Any, **__: Any) -> Watcher:
        return self._turn_ends

    def switch(self) -> Any:
        """Wait, as a greenlet does that switches to its hub."""
        return self._main.switch()

    def ask(self, client: str, times: int = 1, arrived: float | None = None) -> None:
        """Have a client ask; each request comes as far as it gets before it has to wait."""
        for _ in range(times):
            greenlet(self._ask).switch(client, self.now if arrived is None else arrived)

    def _ask(self, client: str, arrived: float) -> None:
        self.now += READING
        try:
            if not self.control.enter_at_once(client):
                self.control.enter_in_turn(client)
        except Overloaded:
            self.now += REFUSING
            self.outcomes.append(("refused", client, self.now - arrived))
            return
        self.outcomes.append(("started", client, self.now - arrived))
        self.now += self.cost
        self.control.leave()

    def begin_turn(self) -> None:
        assert self._turn_begins.call is not None
        self._turn_begins.call()

    def end_turn(self) -> None:
        if self._turn_ends.call is not None:
            self._turn_ends.call()

    def count(self, outcome: str, client: str | None = None) -> int:
        return sum(one == outcome and client in (None, who) for one, who, _ in self.outcomes)

    def longest(self, outcome: str, client: str) -> float:
        return max((seconds for one, who, seconds in self.outcomes if (one, who) == (outcome, client)), default=0.0)


@pytest.fixture
def busy() -> Worker:
    """A worker whose turn has lasted too long; each request costs it a whole turn."""
    worker = Worker()
    worker.begin_turn()
    worker.now += 0.03
    worker.cost = 0.03
    return worker


def finish(worker: Worker) -> None:
    """Let turns pass until no request waits."""
    while worker.control.waiting:
        worker.begin_turn()
        worker.end_turn()


def test_who_is_shed_is_refused_on_arrival_and_who_waits_is_served(busy: Worker) -> None:
    # A thousand a second is expected at first, and four fifths of the two seconds is what a burst may fill.
    busy.cost = 0.0005
    busy.ask("a", 2_000)
    assert (busy.count("started"), busy.count("refused"), busy.control.waiting) == (0, 399, 1_601)
    finish(busy)
    assert (busy.count("started"), busy.count("refused")) == (1_601, 399)
    assert busy.longest("refused", "a") < 0.001


def test_a_queue_that_has_not_been_empty_for_a_while_is_kept_short(busy: Worker) -> None:
    busy.ask("a", 600)
    assert busy.count("refused") == 0
    busy.now += 0.6
    busy.ask("a", 50)
    assert (busy.count("refused"), busy.control.waiting) == (50, 600)


def test_a_client_with_a_thousand_requests_lets_others_go_between_them(busy: Worker) -> None:
    busy.ask("a", 900)
    busy.ask("b", 3)
    busy.ask("c")
    for _ in range(8):
        busy.begin_turn()
        busy.end_turn()
    assert "".join(client for _, client, _ in busy.outcomes) == "abcababa"


def test_a_client_is_let_in_while_another_is_shed(busy: Worker) -> None:
    busy.ask("a", 1_300)
    busy.now += 0.6
    before = len(busy.outcomes)
    busy.ask("a", 10)
    busy.ask("b", 10)
    assert [one[:2] for one in busy.outcomes[before:]] == [("refused", "a")] * 10
    assert busy.control.waiting == 1_310


def test_a_rate_measured_in_earlier_trouble_does_not_shed_a_later_burst(busy: Worker) -> None:
    busy.ask("a", 40)
    finish(busy)
    assert busy.count("started") == 40
    busy.now += 10
    busy.begin_turn()
    busy.now += 0.03
    busy.cost = 0.0005
    busy.ask("a", 200)
    assert busy.count("refused") == 0


def test_who_has_waited_for_longer_than_the_limit_is_refused(busy: Worker) -> None:
    busy.ask("a", 3)
    # The worker stood still.
    busy.now += 2.1
    busy.begin_turn()
    for _ in range(3):
        busy.end_turn()
    assert [outcome for outcome, *_ in busy.outcomes] == ["refused"] * 3
    assert busy.control.in_progress == 0


def test_beyond_the_most_at_once_everybody_is_refused() -> None:
    worker = Worker(most=5)
    worker.begin_turn()
    worker.now += 0.03
    for client in ("a", "a", "a", "a", "b", "c"):
        worker.ask(client)
    assert [one[:2] for one in worker.outcomes] == [("refused", "c")]


def test_on_a_calm_worker_nobody_waits() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.ask("a", 3)
    assert [outcome for outcome, *_ in worker.outcomes] == ["started"] * 3
    assert worker.control.in_progress == 0


def test_at_twice_its_load_a_worker_does_as_much_as_ever_refuses_at_once_and_serves_bystanders() -> None:
    """Ten virtual seconds in which one client asks for twice of what the worker can do, and another for a little."""
    worker, draw, seconds = Worker(), random.Random(1), 10
    worker.cost = 0.003
    capacity = 1 / (worker.cost + READING)
    arrivals = []
    for client, rate in (("flood", capacity * 2), ("bystander", 20)):
        at = 0.0
        while (at := at + draw.expovariate(rate)) < seconds:
            arrivals.append((at, client))
    arrivals.sort(reverse=True)
    while arrivals:
        worker.begin_turn()
        began = worker.now
        while arrivals and arrivals[-1][0] <= worker.now:
            arrived, client = arrivals.pop()
            worker.ask(client, arrived=arrived)
        worker.end_turn()
        if worker.now == began:
            worker.now += 0.0002
    assert worker.count("started") / seconds >= 0.95 * capacity
    assert worker.longest("refused", "flood") < 0.05
    assert worker.longest("started", "flood") < 1
    assert worker.count("refused", "bystander") == 0
    assert worker.longest("started", "bystander") < 0.05


def test_what_was_started_before_goes_on_before_more_is_started(busy: Worker) -> None:
    """Started requests cost more in later turns than in their first: as many as have time for that are let in."""
    busy.cost = 0.001
    busy.ask("a", 40)
    busy.begin_turn()
    busy.end_turn()
    first = busy.count("started")
    # Those go on, in what comes between two looks at the queue, for longer than a turn may last.
    busy.now += 0.025
    busy.begin_turn()
    busy.end_turn()
    assert busy.count("started") == first + 1
    busy.begin_turn()
    busy.end_turn()
    assert busy.count("started") > first + 5


def test_turns_are_short_while_several_clients_ask(busy: Worker) -> None:
    """In long turns all clients would wait, step by step, for the one with most requests."""
    busy.cost = 0.001
    busy.ask("a", 200)
    started_in_a_turn(busy)
    assert started_in_a_turn(busy) > 12
    busy.ask("b", 2)
    # Half as many as have been answered, down to what a turn has time for.
    for _ in range(4):
        started_in_a_turn(busy)
    assert 1 <= started_in_a_turn(busy) <= 2
    # A second after the last one of another client they are long again.
    busy.now += 1.1
    started_in_a_turn(busy)
    assert started_in_a_turn(busy) > 12


def test_a_client_that_did_not_have_to_wait_makes_turns_short_as_well() -> None:
    worker = Worker()
    worker.cost = 0.001
    worker.begin_turn()
    worker.ask("bystander")
    worker.begin_turn()
    worker.ask("a", 100)
    assert (worker.count("started", "a"), worker.control.waiting) == (1, 99)


def started_in_a_turn(worker: Worker) -> int:
    """Let a turn pass; return how many requests it has started."""
    before = worker.count("started")
    worker.begin_turn()
    worker.end_turn()
    return worker.count("started") - before


def test_a_worker_without_time_starts_half_as_many_as_it_answers(busy: Worker) -> None:
    """One each turn would starve a worker whose turns are long, and all that it answers would keep them long."""
    busy.cost = 0.001
    busy.ask("a", 40)
    busy.control.in_progress = 10
    for _ in range(10):
        busy.control.leave()
    busy.begin_turn()
    busy.end_turn()
    assert busy.count("started") == 5


def test_no_request_starts_while_the_store_is_behind_and_clients_take_turns_afterwards() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.unanswered = 32
    worker.ask("a", 3)
    worker.ask("b")
    assert [started_in_a_turn(worker) for _ in range(3)] == [0, 0, 0]
    assert worker.control.waiting == 4
    worker.unanswered = 31
    assert started_in_a_turn(worker) == 4
    assert "".join(client for _, client, _ in worker.outcomes) == "abaa"


def test_who_waits_for_a_store_that_is_behind_for_too_long_is_refused() -> None:
    worker = Worker()
    worker.begin_turn()
    worker.unanswered = 32
    worker.ask("a")
    worker.now += 2.1
    worker.begin_turn()
    worker.end_turn()
    assert (worker.outcomes, worker.control.waiting) == ([], 1)
    worker.unanswered = 0
    worker.end_turn()
    assert [outcome for outcome, *_ in worker.outcomes] == ["refused"]
