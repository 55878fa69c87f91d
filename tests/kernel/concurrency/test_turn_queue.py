"""Greenlets that step aside: the loop looks for what has arrived before they go on, a few in each of its turns."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress

import gevent
import pytest

from apps.kernel.concurrency.green_socket import watch_readable
from apps.kernel.concurrency.turn_queue import (
    MAX_ANSWERS,
    MAX_SECONDS,
    MAX_WAIT,
    MIN_ANSWERS,
    AnswerTurns,
    TurnQueue,
    let_others_go_on,
)

STEPS = 200


def test_what_has_arrived_is_served_before_work_goes_on() -> None:
    ours, theirs = socket.socketpair()
    readable = watch_readable(ours)
    steps, steps_before = [0], list[int]()

    def work() -> None:
        for _ in range(STEPS):
            steps[0] += 1
            let_others_go_on()

    def read() -> None:
        gevent.get_hub().wait(readable)
        steps_before.append(steps[0])

    with ours, theirs:
        reading = gevent.spawn(read)
        working = [gevent.spawn(work) for _ in range(2)]
        theirs.send(b"x")
        gevent.joinall([reading, *working], timeout=5, raise_error=True)
        readable.close()
    # Both begin in the turn in which the bytes arrive, and may go on beside the reader in the next.
    assert steps_before[0] <= 4
    assert steps == [2 * STEPS]


def test_a_turn_wakes_as_many_as_there_is_time_for_in_rotation() -> None:
    now, turns = [0.0], list[tuple[str, int]]()
    queue = TurnQueue(lambda: now[0])

    def work(client: str) -> None:
        queue.wait_for_turn(client)
        now[0] += MAX_SECONDS / 3.5
        turns.append((client, gevent.get_hub().loop.iteration))

    works = [gevent.spawn(work, client) for client in ("many",) * 9 + ("other",)]
    gevent.joinall(works, timeout=5, raise_error=True)
    assert [client for client, _ in turns] == ["many", "other", *("many",) * 8]
    assert list(Counter(turn for _, turn in turns).values()) == [4, 4, 2]


def test_each_goes_on_once_in_a_turn() -> None:
    queue = TurnQueue(lambda: 0.0)
    turns = Counter[int]()

    def work() -> None:
        for _ in range(20):
            queue.wait_for_turn()
            turns[gevent.get_hub().loop.iteration] += 1

    gevent.joinall([gevent.spawn(work) for _ in range(3)], timeout=5, raise_error=True)
    assert list(turns.values()) == [3] * 20


def test_who_is_interrupted_does_not_keep_others_from_their_turn() -> None:
    queue, went_on = TurnQueue(), list[str]()

    def work(name: str) -> None:
        with suppress(gevent.GreenletExit):
            queue.wait_for_turn(name)
            went_on.append(name)

    first, second = gevent.spawn(work, "first"), gevent.spawn(work, "second")
    gevent.sleep(0)
    gevent.kill(first)
    gevent.joinall([second], timeout=5, raise_error=True)
    assert went_on == ["second"]


def test_who_fails_does_not_keep_others_from_their_turn(capsys: pytest.CaptureFixture[str]) -> None:
    queue, went_on = TurnQueue(lambda: 0.0), list[str]()

    def work(name: str) -> None:
        queue.wait_for_turn(name)
        if name == "first":
            raise ValueError(name)
        went_on.append(name)

    works = [gevent.spawn(work, name) for name in ("first", "second")]
    gevent.joinall(works, timeout=5)
    assert went_on == ["second"]
    assert "ValueError: first" in capsys.readouterr().err


def test_work_goes_on_where_there_is_nothing_else_to_do() -> None:
    for _ in range(3):
        let_others_go_on()


class AnswersInProgress:
    """Greenlets that each pass on so many pieces, and in which turns of the loop; each piece takes some time."""

    def __init__(self, answers: int, pieces: int, seconds: float = MIN_ANSWERS / 3.5) -> None:
        self.now = 0.0
        self.turns = Counter[int]()
        self.order: list[int] = []
        self._seconds = seconds
        self._turns = AnswerTurns(lambda: self.now)
        self.greenlets = [gevent.spawn(self._pass_on, number, pieces) for number in range(answers)]

    def _pass_on(self, number: int, pieces: int) -> None:
        for _ in range(pieces):
            self._turns.take()
            self.now += self._seconds
            self.turns[gevent.get_hub().loop.iteration] += 1
            self.order.append(number)

    def finish(self) -> None:
        gevent.joinall(self.greenlets, timeout=5, raise_error=True)


def test_answers_in_progress_have_a_share_of_each_turn_in_rotation() -> None:
    answers = AnswersInProgress(answers=6, pieces=8)
    answers.finish()
    # The first goes on while its turn has time; then all of them do, one after the other.
    assert answers.order[:4] == [0, 0, 0, 0]
    assert answers.order[4:28] == [0, 1, 2, 3, 4, 5] * 4
    assert max(answers.turns.values()) == 4
    assert len(answers.order) == 48


@pytest.mark.parametrize(
    ("piece", "all_else", "share"),
    [
        (MIN_ANSWERS / 3.5, 0.0, 4),
        (MIN_ANSWERS / 3.5, 0.9 * MAX_WAIT, 4),
        (MAX_ANSWERS / 5.5, 1.1 * MAX_WAIT, 6),
    ],
    ids=["nothing else", "others first", "others first for too long"],
)
def test_answers_in_progress_have_more_of_a_turn_when_they_have_waited(
    piece: float, all_else: float, share: int
) -> None:
    answers = AnswersInProgress(answers=40, pieces=1, seconds=piece)

    def work_once() -> None:
        answers.now += all_else

    gevent.spawn(work_once)
    answers.finish()
    # The other work is done after the turn in which some go on at once, and before the next.
    assert list(answers.turns.values())[1] == share


def test_what_has_arrived_goes_before_answers_in_progress() -> None:
    ours, theirs = socket.socketpair()
    readable = watch_readable(ours)
    before: list[int] = []

    def read() -> None:
        gevent.get_hub().wait(readable)
        before.append(len(answers.order))

    with ours, theirs:
        theirs.send(b"x")
        reading = gevent.spawn(read)
        answers = AnswersInProgress(answers=20, pieces=4)
        answers.finish()
        reading.get(timeout=5)
        readable.close()
    # Those that went on at once in the turn in which they began, and no other.
    assert before == [4]
