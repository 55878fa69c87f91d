"""A model checker: visits every state that a protocol can reach, and finds the shortest history to a broken promise.

A model is a protocol in miniature. Its state is an immutable value. `steps` yields each thing that a process may do
next, and `faults` each thing that may go wrong: a label, and the state after it. The checker visits all interleavings
breadth-first, those with fewer faults before those with more, so a counterexample is as short as can be. It holds that

- every invariant is true in every state;
- every promise is true at rest, which is where no step changes anything;
- from every state, steps alone lead to a state at rest.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Moves = Iterator[tuple[str, State]]
Predicates = Mapping[str, Callable[[State], bool]]

FAULT = "fault: "
COMES_TO_REST = "comes to rest"


class Model(Protocol[State]):
    """A protocol, its invariants, and its promises at rest."""

    @property
    def invariants(self) -> Predicates[State]:
        """The predicates that hold in every state, by name."""

    @property
    def promises(self) -> Predicates[State]:
        """The predicates that hold at rest, by name."""

    def initial(self) -> State:
        """Return the first state."""

    def steps(self, state: State) -> Moves[State]:
        """Yield the steps that processes may take; one that leads back to the same state counts as none."""

    def faults(self, state: State) -> Moves[State]:
        """Yield the faults that may strike; in a history, `FAULT` precedes their labels."""


@dataclass(frozen=True)
class Report(Generic[State]):
    """How much was visited, and the first broken predicate with the history that leads to it, if any.

    `history` has each label with the state after it; the first one is the initial state.
    """

    states: int
    transitions: int
    broken: str = ""
    history: tuple[tuple[str, State], ...] = ()

    def __str__(self) -> str:
        counts = f"{self.states:,} states, {self.transitions:,} transitions"
        if not self.broken:
            return counts
        lines = [f"{number:>3}. {label}\n       {state}" for number, (label, state) in enumerate(self.history)]
        return "\n".join([f"Broken after {counts}: {self.broken}", *lines])


def check(model: Model[State], max_faults: int) -> Report[State]:
    """Visit every state within a number of faults; return the first broken predicate, or none."""
    first = model.initial()
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    before, resting = defaultdict[State, list[State]](list), list[State]()
    transitions, wave = 0, [first]

    def report(broken: str = "", at: State | None = None) -> Report[State]:
        return Report(len(came_from), transitions, broken, () if at is None else _history(came_from, at))

    for faults_left in range(max_faults, -1, -1):
        queue, struck = deque(wave), list[tuple[State, State, str]]()
        while queue:
            state = queue.popleft()
            if name := _broken(model.invariants, state):
                return report(name, state)
            after_steps = [(label, after) for label, after in model.steps(state) if after != state]
            transitions += len(after_steps)
            for label, after in after_steps:
                before[after].append(state)
                if after not in came_from:
                    came_from[after] = state, label
                    queue.append(after)
            if not after_steps:
                resting.append(state)
                if name := _broken(model.promises, state):
                    return report(name, state)
            if faults_left:
                struck += [(after, state, FAULT + label) for label, after in model.faults(state)]
        transitions += len(struck)
        # Only now: steps alone may lead to the same states.
        wave = []
        for after, state, label in struck:
            if after not in came_from:
                came_from[after] = state, label
                wave.append(after)
    stuck = _never_at_rest(came_from, before, resting)
    return report() if stuck is None else report(COMES_TO_REST, stuck)


def _broken(predicates: Predicates[State], state: State) -> str:
    return next((name for name, holds in predicates.items() if not holds(state)), "")


def _history(came_from: Mapping[State, tuple[State, str] | None], state: State) -> tuple[tuple[str, State], ...]:
    history = list[tuple[str, State]]()
    while (origin := came_from[state]) is not None:
        history.append((origin[1], state))
        state = origin[0]
    return ("start", state), *reversed(history)


def _never_at_rest(
    reached: Mapping[State, object], before: Mapping[State, list[State]], resting: list[State]
) -> State | None:
    """Return a state from which no steps lead to rest."""
    leads, queue = set(resting), deque(resting)
    while queue:
        for earlier in before.get(queue.popleft(), ()):
            if earlier not in leads:
                leads.add(earlier)
                queue.append(earlier)
    return next((state for state in reached if state not in leads), None)
