"""Greenlets that step aside: the loop looks for what has arrived before they go on, a few in each of its turns."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress

import gevent
import pytest

from apps.kernel.concurrency.green_socket import watch_readable
from apps.kernel.concurrency.turn_queue import MAX_SECONDS, TurnQueue, let_others_go_on

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
