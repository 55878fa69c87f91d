"""Fair turns and shares: a crowd of one owner costs another a turn, or none of its places."""

from __future__ import annotations

import pytest

from apps.kernel.concurrency import fairness
from apps.kernel.concurrency.fairness import FairShare, FairTurns
from apps.kernel.errors import Overloaded, RateLimited


def served(turns: FairTurns[str], waiting: list[str], count: int) -> list[str]:
    """Serve so many of what waits, each named by its owner and a number; return their names."""
    done = []
    for _ in range(count):
        name = turns.order(waiting, lambda name: name[0])[0]
        turns.take(name[0])
        waiting.remove(name)
        done.append(name)
    return done


def test_owners_take_turns_however_many_each_has() -> None:
    turns: FairTurns[str] = FairTurns()
    waiting = [f"a{number}" for number in range(100)]
    assert served(turns, waiting, 2) == ["a0", "a1"]
    waiting += ["b0", "b1", "c0"]
    assert served(turns, waiting, 6) == ["b0", "c0", "a2", "b1", "a3", "a4"]


def test_so_many_owners_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "MAX_OWNERS", 2)
    turns: FairTurns[str] = FairTurns()
    for owner in "abc":
        turns.take(owner)
    assert turns.order(["c", "a"], str) == ["a", "c"]


def test_one_owner_leaves_places_to_others() -> None:
    share: FairShare[str] = FairShare(3, 2, "calls")
    share.take("a")
    share.take("a")
    with pytest.raises(RateLimited, match="More than 2 calls of one organization at once") as own:
        share.take("a")
    assert own.value.code == "concurrency_exceeded"
    share.take("b")
    with pytest.raises(Overloaded, match="Too many calls are under way"):
        share.take("c")
    share.give_back("a")
    share.take("c")
    share.give_back("b")
    share.take("a")
    with pytest.raises(RateLimited):
        share.take("a")
