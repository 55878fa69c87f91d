"""The simulator: random histories keep every promise, and each mutant breaks one within some seeds."""

from __future__ import annotations

import pytest

from tests.proofs.simulator import search
from tests.proofs.simulator.mutants import MUTANTS
from tests.proofs.simulator.search import History, draw, find_failure, play, shrink

STEPS = 150
# Seeds within which each mutant is found.
SEEDS = range(1, 16)


@pytest.mark.django_db(transaction=True)
def test_histories_keep_every_promise() -> None:
    failure = find_failure(range(1, 9), STEPS)
    assert failure is None, str(failure)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str) -> None:
    with MUTANTS[name]():
        failure = find_failure(SEEDS, STEPS)
    assert failure is not None
    assert failure.problems


@pytest.mark.django_db(transaction=True)
def test_a_seed_gives_the_same_history_and_its_moves_the_same_problems() -> None:
    with MUTANTS["never swept"]():
        failure = find_failure(SEEDS, STEPS)
        assert failure is not None
        assert draw(failure.seed, STEPS).moves == failure.moves
        assert play(failure.moves)


def test_a_failing_history_is_shortened_to_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(moves: search.Moves) -> list[str]:
        return ["broken"] if {("ask", 3), ("forget",)} <= set(moves) else []

    monkeypatch.setattr(search, "play", fails)
    moves = [*(("ask", number) for number in range(20)), ("forget",), ("resume", "settler 0")]
    assert shrink(History(7, moves, ["broken"])) == History(7, [("ask", 3), ("forget",)], ["broken"])
