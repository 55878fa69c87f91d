"""The model checker: finds the shortest history, fewest faults first, and tells rest from a circle."""

from __future__ import annotations

from collections.abc import Callable

from tests.proofs.models.checker import COMES_TO_REST, FAULT, Moves, Predicates, check


class Counter:
    """A number that steps to 3, and that a fault moves by 10; 13 is the first number after a fault at 3."""

    invariants: Predicates[int] = {}
    promises: Predicates[int] = {}

    def initial(self) -> int:
        return 0

    def steps(self, state: int) -> Moves[int]:
        yield "stays", state
        if state < 3:
            yield "adds one", state + 1

    def faults(self, state: int) -> Moves[int]:
        yield "adds ten", state + 10


def broken(predicate: Callable[[int], bool], max_faults: int) -> Counter:
    model = Counter()
    model.invariants = {"an invariant": predicate}
    assert check(model, max_faults - 1).broken == ""
    return model


def test_every_state_within_the_faults_is_visited_once() -> None:
    assert check(Counter(), 0).states == 4
    assert check(Counter(), 1).states == 8
    assert check(Counter(), 2).states == 12
    assert check(Counter(), 1).transitions == 3 + 4


def test_a_broken_invariant_is_shown_with_the_fewest_faults() -> None:
    report = check(broken(lambda state: state < 12, 1), 3)
    assert (report.broken, report.history) == (
        "an invariant",
        (("start", 0), ("adds one", 1), ("adds one", 2), (FAULT + "adds ten", 12)),
    )
    assert str(report).splitlines()[1:3] == ["  0. start", "       0"]


def test_a_promise_is_held_to_at_rest_alone() -> None:
    model = Counter()
    model.promises = {"a promise": lambda state: state == 3}
    assert check(model, 0).broken == ""
    report = check(model, 1)
    assert (report.broken, report.history[-1]) == ("a promise", (FAULT + "adds ten", 10))


class Circle(Counter):
    """A number that goes round, and never comes to rest above 3."""

    def steps(self, state: int) -> Moves[int]:
        yield from super().steps(state)
        if state >= 10:
            yield "goes round", 10 + (state + 1) % 3


def test_a_circle_without_a_way_to_rest_is_found() -> None:
    assert check(Circle(), 0).broken == ""
    report = check(Circle(), 1)
    assert (report.broken, report.history) == (COMES_TO_REST, (("start", 0), (FAULT + "adds ten", 10)))
