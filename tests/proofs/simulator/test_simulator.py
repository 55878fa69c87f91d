"""The simulator: random histories keep every promise, and each mutant breaks one within some seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proofs.simulator import search
from tests.proofs.simulator.mutants import MUTANTS
from tests.proofs.simulator.search import History, draw, find_failure, play, shrink
from tests.proofs.simulator.stores import BRANCHES, Doubles

STEPS = 150
# Seeds within which a mutant is found.
SEEDS = range(1, 16)
# Mutants that need a history which chance rarely draws. The product itself failed in each of these once.
RARE: dict[str, search.Moves] = {
    # A settler has read a record before the store loses its data, and a new record gets its id.
    "acknowledged by id": [
        ("resume", "settler 1", 4),
        ("ask", "request 6", 2, 1, 2, 1, False),
        ("resume", "request 6", 5),
        ("resume", "settler 1", 11),
        ("ask", "request 7", 1, 0, 4, 0, False),
        ("fail", "settler 1", "answer lost", 3),
        ("resume", "settler 1", 16),
        ("resume", "request 7", 7),
        ("forget",),
        ("resume", "worker 0", 6),
        ("resume", "settler 1", 3),
    ],
    # A worker has stood still for longer than its lease, and admits a request before its next heartbeat.
    "never renewed by a reservation": [
        ("let time pass", 1),
        ("let time pass", 0),
        ("ask", "request 0", 1, 0, 6, 6, True),
        ("resume", "request 0", 4),
        *[("resume", "settler 0", 8)] * 6,
    ],
    # So has this one, but a settler has already found it.
    "never looked at again": [
        ("let time pass", 1),
        ("let time pass", 0),
        ("resume", "settler 0", 17),
        ("ask", "request 0", 1, 0, 6, 6, True),
        ("resume", "request 0", 4),
        *[("resume", "settler 0", 8)] * 5,
    ],
}


@pytest.fixture
def doubles() -> Iterator[Doubles]:
    made = Doubles()
    with made.installed():
        yield made


def test_histories_keep_every_promise(doubles: Doubles) -> None:
    failure = find_failure(range(1, 61), STEPS, doubles)
    assert failure is None, str(failure)
    assert BRANCHES - set(+doubles.reached) == set()


@pytest.mark.parametrize("name", RARE)
def test_a_mutant_is_found_by_a_rare_history(name: str, doubles: Doubles) -> None:
    with MUTANTS[name]():
        assert play(RARE[name], doubles)
    assert play(RARE[name], doubles) == []


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE.keys()))
def test_a_mutant_is_found(name: str, doubles: Doubles) -> None:
    with MUTANTS[name]():
        failure = find_failure(SEEDS, STEPS, doubles)
    assert failure is not None
    assert failure.problems
    # The product itself keeps its promises there.
    assert draw(failure.seed, STEPS, doubles).problems == []


def test_a_seed_gives_the_same_history_and_its_moves_the_same_problems(doubles: Doubles) -> None:
    with MUTANTS["never swept"]():
        failure = find_failure(SEEDS, STEPS, doubles)
        assert failure is not None
        assert draw(failure.seed, STEPS, doubles).moves == failure.moves
        assert play(failure.moves, doubles)


def test_a_failing_history_is_shortened_to_what_it_needs(monkeypatch: pytest.MonkeyPatch, doubles: Doubles) -> None:
    def fails(moves: search.Moves, stores: Doubles) -> list[str]:
        return ["broken"] if {("ask", 3), ("forget",)} <= set(moves) else []

    monkeypatch.setattr(search, "play", fails)
    moves = [*(("ask", number) for number in range(20)), ("forget",), ("resume", "settler 0")]
    assert shrink(History(7, moves, ["broken"]), doubles) == History(7, [("ask", 3), ("forget",)], ["broken"])
