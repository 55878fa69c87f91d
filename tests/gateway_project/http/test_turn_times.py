"""The longest turn of the event loop: all that is done between two looks at what has arrived, and no waiting."""

from __future__ import annotations

import gevent

from apps.kernel.concurrency.turn_queue import let_others_go_on
from gateway_project.http.client_events import TurnTimes


class Clock:
    """One that only work moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now += seconds


def test_all_that_is_done_in_one_turn_counts() -> None:
    clock = Clock()
    times = TurnTimes(clock)
    let_others_go_on()
    works = [gevent.spawn(clock.work, seconds) for seconds in (0.25, 0.5)]
    gevent.joinall(works)
    let_others_go_on()
    assert times.take_longest() == 0.75
    assert times.take_longest() == 0.0


def test_the_longest_of_several_turns_is_told() -> None:
    clock = Clock()
    times = TurnTimes(clock)
    for seconds in (0.25, 1.0, 0.5):
        let_others_go_on()
        clock.work(seconds)
    let_others_go_on()
    assert times.take_longest() == 1.0


def test_to_wait_is_no_part_of_a_turn() -> None:
    clock = Clock()
    # Called behind the end of a turn, as the last thing before the loop waits: the first one started comes last.
    waiting = gevent.get_hub().loop.prepare(ref=False, priority=-2)
    waiting.start(clock.work, 5.0)
    times = TurnTimes(clock)
    for _ in range(3):
        let_others_go_on()
    waiting.stop()
    waiting.close()
    assert clock.now >= 10.0
    assert times.take_longest() == 0.0
