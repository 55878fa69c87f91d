"""Single flight: one finds out for all who ask at the same time."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from gevent import Greenlet, GreenletExit, sleep

from apps.kernel.concurrency.single_flight import SingleFlight, _Flight
from tests.stack.product import eventually


def together(flights: SingleFlight[str, object], count: int, answer: object) -> tuple[list[object], int]:
    """Ask from so many threads at once; return the answer that each got, and how often the answer was computed."""
    asked, go_on, all_there = [], Event(), Barrier(count + 1)

    def find_out() -> object:
        asked.append(1)
        assert go_on.wait(60)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask() -> object:
        all_there.wait()
        try:
            return flights.run("key", find_out)
        except ValueError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        asking = [pool.submit(ask) for _ in range(count)]
        all_there.wait()
        eventually(lambda: flights.is_under_way("key") and len(flights._flights["key"]._waiting) == count - 1)
        go_on.set()
        return [one.result(5) for one in asking], len(asked)


def test_one_finds_out_for_all() -> None:
    assert together(SingleFlight(5), 20, "found") == (["found"] * 20, 1)


def test_a_failure_is_shared_and_the_next_who_asks_tries_again() -> None:
    flights: SingleFlight[str, object] = SingleFlight(5)
    error = ValueError("away")
    assert together(flights, 20, error) == ([error] * 20, 1)
    assert flights.run("key", lambda: "found") == "found"
    assert not flights.is_under_way("key")


def test_who_is_ended_in_the_middle_takes_nobody_along() -> None:
    flights: SingleFlight[str, str] = SingleFlight(5)
    begun = []

    def killed() -> str:
        begun.append(flights.is_under_way("key"))
        raise GreenletExit

    first = Greenlet.spawn(flights.run, "key", killed)
    sleep(0)
    assert first.ready()
    assert begun == [True]
    assert flights.run("key", lambda: "found") == "found"


def test_nobody_waits_for_ever() -> None:
    flights: SingleFlight[str, str] = SingleFlight(0.05)
    go_on = Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(flights.run, "key", lambda: "late" if go_on.wait(60) else "never")
        eventually(lambda: flights.is_under_way("key"))
        with pytest.raises(TimeoutError):
            flights.run("key", lambda: "not asked")
        go_on.set()
        assert first.result(5) == "late"


def test_who_gives_up_waiting_does_not_keep_the_next_from_going_on() -> None:
    flight: _Flight[str] = _Flight()
    with ThreadPoolExecutor(2) as pool:
        hasty = pool.submit(flight.wait, 0.05)
        with pytest.raises(TimeoutError):
            hasty.result(5)
        patient = pool.submit(flight.wait, 5)
        eventually(lambda: len(flight._waiting) == 1)
        flight.end("found", None)
        assert patient.result(5) == "found"


# As a process of its own, in which threads are greenlets as in a worker.
WORKER = """
from gevent import monkey; monkey.patch_all()
import gevent
from gevent.event import Event
from apps.kernel.concurrency.single_flight import SingleFlight, _Flight
from tests.stack.product import eventually

flights, found, told = SingleFlight(5), Event(), []

def ask():
    flights.run("key", found.wait)
    if not told:
        gevent.spawn(told.append, "bystander")
    told.append("waited")

asking = [gevent.spawn(ask) for _ in range(50)]
eventually(lambda: flights.is_under_way("key") and len(flights._flights["key"]._waiting) == 49)
found.set()
gevent.joinall(asking)
eventually(lambda: "bystander" in told)
print(len(told), told.index("bystander") < 5)
"""


def test_others_are_served_between_those_who_waited() -> None:
    """Fifty who go on at once would have the event loop for themselves, with each of their steps."""
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True, timeout=110)
    assert done.stdout == "51 True\n"
