"""Histories: drawn by a seed, played again from their moves, and shortened as long as they fail."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.proofs.simulator.stores import Stores
from tests.proofs.simulator.tasks import pausing
from tests.proofs.simulator.world import World

Moves = Sequence[tuple[Any, ...]]
# Plays of shorter histories, at most.
MAX_TRIES = 150
# Moves between two looks at the balances, which cost more than a move.
LOOK_EVERY = 3


@dataclass(frozen=True)
class History:
    """The moves of one history, and what the books lacked after it."""

    seed: int
    moves: Moves
    problems: Sequence[str]

    def __str__(self) -> str:
        moves = "\n".join(f"{number:>4}. {' '.join(map(str, move))}" for number, move in enumerate(self.moves, 1))
        return f"seed {self.seed}, {len(self.moves)} moves\n{moves}\n" + "\n".join(self.problems)


def draw(seed: int, steps: int, stores: Stores) -> History:
    """Return the history of a seed, with so many moves before everything comes to rest."""
    chance, moves = random.Random(seed), list[tuple[Any, ...]]()
    with pausing():
        world = World(stores)

        def drawn() -> Iterator[tuple[Any, ...]]:
            for _ in range(steps):
                moves.append(world.draw_move(chance))
                yield moves[-1]

        return History(seed, moves, _problems_after(world, drawn()))


def play(moves: Moves, stores: Stores) -> list[str]:
    """Play moves in a new world; return what the books lack after it."""
    with pausing():
        return _problems_after(World(stores), iter(moves))


def _problems_after(world: World, moves: Iterator[tuple[Any, ...]]) -> list[str]:
    try:
        for number, move in enumerate(moves):
            world.make(move)
            if number % LOOK_EVERY == 0 and (overrated := world.overrated()):
                return overrated
        return world.come_to_rest()
    except Exception as error:  # noqa: BLE001 - a function that raises what its caller does not expect is a finding
        return [f"{type(error).__name__}: {error}"]
    finally:
        world.close()


def shrink(history: History, stores: Stores) -> History:
    """Return the history without moves that its failure does not need: first large pieces, then single ones."""
    moves, problems, tries = list(history.moves), history.problems, 0
    size = len(moves) // 2
    while size and tries < MAX_TRIES:
        start = 0
        while start < len(moves) and tries < MAX_TRIES:
            shorter = moves[:start] + moves[start + size :]
            tries += 1
            if found := play(shorter, stores):
                moves, problems = shorter, found
            else:
                start += size
        size //= 2
    return History(history.seed, moves, problems)


def find_failure(seeds: Iterable[int], steps: int, stores: Stores) -> History | None:
    """Return the first failing history of some seeds."""
    return next((found for seed in seeds if (found := draw(seed, steps, stores)).problems), None)
