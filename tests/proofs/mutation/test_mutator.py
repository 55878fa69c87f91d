"""The mutator: which faults it puts into a module, and that each is there only while it is switched on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.proofs.mutation.__main__ import AREAS, modules_in, mutants_of, report
from tests.proofs.mutation.mutator import SWITCH, mutate
from tests.proofs.mutation.plugin import Findings, Trial
from tests.proofs.mutation.switches import SWITCHES

SOURCE = '''
"""A module."""
LIMIT = 3

def fits(size: int, most: int = 10) -> bool:
    """Return whether it fits."""
    log.info("asked")
    if size < 0:
        raise ValueError(f"{1 + 1} is too small")
    return size <= most and size != 7

class Basket:
    count = 1

    def add(self, more):
        self.count += more * 2
        return max(self.count, LIMIT) if more else -self.count
'''


class Log:
    def info(self, *_: object) -> None:
        """Ignore the line."""


def module_with(number: int) -> dict[str, Any]:
    """Return what the module defines while a mutant is on."""
    tree, _ = mutate("sample", SOURCE)
    names: dict[str, Any] = {SWITCH: lambda one: one == number, "log": Log()}
    exec(compile(tree, "sample", "exec"), names)
    return names


def test_mutants_of_a_module() -> None:
    _, mutants = mutate("sample", SOURCE)
    assert [(one.number, one.line, one.name) for one in mutants] == [
        (1, 8, "sample:fits: < -> <= #1"),
        (2, 8, "sample:fits: 0 -> 1 #1"),
        (3, 9, "sample:fits: without raise #1"),
        (4, 10, "sample:fits: and -> or #1"),
        (5, 10, "sample:fits: <= -> < #1"),
        (6, 10, "sample:fits: != -> == #1"),
        (7, 10, "sample:fits: 7 -> 8 #1"),
        (8, 16, "sample:Basket.add: without self.count += #1"),
        (9, 16, "sample:Basket.add: * -> / #1"),
        (10, 16, "sample:Basket.add: 2 -> 3 #1"),
        (11, 17, "sample:Basket.add: condition -> not condition #1"),
        (12, 17, "sample:Basket.add: max -> min #1"),
        (13, 17, "sample:Basket.add: without - #1"),
    ]


def test_without_a_mutant_a_module_is_as_it_was() -> None:
    names = module_with(0)
    assert [names["fits"](size) for size in (0, 7, 10, 11)] == [True, False, True, False]
    basket = names["Basket"]()
    assert (basket.add(2), basket.add(0), names["LIMIT"], names["Basket"].count) == (5, -5, 3, 1)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(2, ValueError), (4, [True, True, True, True]), (5, [True, False, False, False]), (7, [True, True, True, False])],
)
def test_a_mutant_changes_its_own_place_alone(number: int, expected: Any) -> None:
    fits = module_with(number)["fits"]
    if expected is ValueError:
        with pytest.raises(ValueError, match="2 is too small"):
            fits(0)
    else:
        assert [fits(size) for size in (0, 7, 10, 11)] == expected


def test_a_statement_is_left_out() -> None:
    basket = module_with(8)["Basket"]()
    assert basket.add(5) == 3


def test_every_module_is_of_one_area_and_every_mutant_has_its_own_name() -> None:
    modules = [module for places, _ in AREAS.values() for module in modules_in(places)]
    places = ["apps/billing", "apps/gateway/settlement", "apps/gateway/admission", "apps/limits/key_limits.py"]
    assert sorted(modules) == modules_in(places)
    assert [path for _, tests in AREAS.values() for path in tests if not Path(path).exists()] == []
    for module in modules:
        names = [one.name for one in mutants_of(module)]
        assert len(set(names)) == len(names)


class SmallTrial(Trial):
    """A trial whose tests are functions of the mutant that is on and of what mutants left in the process."""

    def __init__(self, findings: Path, tests: Mapping[str, Callable[[int], bool]]) -> None:
        session: Any = SimpleNamespace(items=[SimpleNamespace(nodeid=name) for name in tests])
        super().__init__(session, findings, budget=60, share=1)
        self._tests, self.ran = tests, list[tuple[str, int]]()

    def _passes(self, name: str, seconds: float) -> tuple[bool, float]:
        self.ran.append((name, SWITCHES.active))
        SWITCHES.reached.update(SWITCHES.mutants if name != "other" else ())
        return self._tests[name](SWITCHES.active), 0.0


@pytest.fixture
def three_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = mutate("sample", SOURCE)[1][:3]
    monkeypatch.setattr(SWITCHES, "mutants", {one.number: one for one in mutants})


def fates_in(path: Path) -> list[str]:
    """Return the fates of the three mutants, in their order."""
    found = Findings(path).fates
    return [found[one.name]["fate"] if one.name in found else "" for one in SWITCHES.mutants.values()]


@pytest.mark.usefixtures("three_mutants")
def test_a_mutant_that_survived_meets_new_tests_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    SmallTrial(path, {"other": lambda on: on == 0}).run()
    assert fates_in(path) == ["not reached"] * 3
    # Another process of the same run goes on behind them.
    SmallTrial(path, {"one": lambda on: on != 1}).run()
    assert fates_in(path) == ["not reached"] * 3
    Findings(path).add(run=1)
    SmallTrial(path, {"other": lambda on: True, "one": lambda on: on != 1}).run()
    assert fates_in(path) == ["killed", "survived", "survived"]
    Findings(path).add(run=1)
    again = SmallTrial(path, {"one": lambda on: True, "two": lambda on: on != 3})
    again.run()
    assert fates_in(path) == ["killed", "survived", "killed"]
    # "two" without a mutant, with each of the two that were left, and without the one that it noticed.
    assert again.ran == [("two", 0), ("two", 2), ("two", 3), ("two", 0)]


@pytest.mark.usefixtures("three_mutants")
def test_a_test_that_a_mutant_has_spoiled_kills_no_other_mutant(tmp_path: Path) -> None:
    path, spoiled = tmp_path / "a", list[int]()

    def test(on: int) -> bool:
        """Fail with the first mutant, and from then on for as long as the process lives."""
        if on == 1:
            spoiled.append(on)
        return not spoiled

    for _ in range(3):
        # The second and third are killed by what the first left: a process that notices it ends.
        with pytest.raises(pytest.exit.Exception):
            SmallTrial(path, {"one": test}).run()
        spoiled.clear()
    assert fates_in(path) == ["killed", "", ""]
    SmallTrial(path, {"one": test}).run()
    assert fates_in(path) == ["killed", "survived", "survived"]


@pytest.mark.usefixtures("three_mutants")
def test_a_test_that_fails_by_itself_in_another_process_kills_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    # Reached, then tried with the three, confirmed together; alone in the second process; by itself in the third.
    answers = deque([True, *[False] * 4, *[False] * 2, False])

    def test(_: int) -> bool:
        return answers.popleft() if answers else True

    for _ in range(2):
        with pytest.raises(pytest.exit.Exception):
            SmallTrial(path, {"one": test}).run()
    SmallTrial(path, {"one": test}).run()
    assert (fates_in(path), len(answers)) == (["survived"] * 3, 0)


@pytest.mark.usefixtures("three_mutants")
def test_only_a_mutant_that_ended_its_process_is_killed_by_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first, second, _ = (one.name for one in SWITCHES.mutants.values())
    Findings(path).add(begun=first)
    SmallTrial(path, {"one": lambda on: True}).run()
    assert fates_in(path) == ["survived"] * 3
    path.unlink()
    Findings(path).add(begun=second)
    Findings(path).add(ended=-9)
    SmallTrial(path, {"one": lambda on: True}).run()
    assert fates_in(path) == ["survived", "killed", "survived"]


def test_the_score_counts_what_survived_and_what_no_test_reached(tmp_path: Any) -> None:
    module = "apps.limits.key_limits"
    first, second, third, *others = (one.name for one in mutants_of(module))
    findings = Findings(tmp_path / "findings.jsonl")
    findings.add(mutant=first, fate="killed", by="a test")
    findings.add(mutant=second, fate="survived")
    findings.add(mutant=third, fate="not reached")
    words, score = report([module], Findings(tmp_path / "findings.jsonl").fates)
    assert score == 1 / 3
    assert f"| `{module}` | {3 + len(others)} | 1 | 1 | 0 | 1 | {len(others)} | 33.3% |" in words
    assert [line.split(":")[0] for line in words.splitlines()[-2:]] == ["survived", "not reached"]
