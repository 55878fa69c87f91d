"""The pytest plugin that runs the tests: once without a mutant, to see what they reach, then those of each mutant.

A mutant is killed when a test fails with it, and passes after it without. A few mutants are confirmed together, because
most fail the same tests; where a test does not pass, each of them is tried again and confirmed alone. Each finding
is added to a file of JSON lines, so a run that is stopped, or started again because a mutant has spoiled its process,
goes on there as long as the mutated functions stay the same. A mutant that survived is tried with the tests that it has
not met: new ones, and those for which there was no time.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from tests.proofs.mutation.mutator import Mutant
from tests.proofs.mutation.switches import SWITCHES, install

MODULES, FINDINGS, BUDGET, SHARE = "MUTATED_MODULES", "MUTATION_FINDINGS", "MUTATION_BUDGET", "MUTATION_SHARE"
# A test that takes so many times as long as without a mutant, and some seconds, hangs.
_SLOWER, _MORE_SECONDS = 10.0, 15.0
# Without a mutant none hangs; but the first one waits for the stores, which a busy machine makes in minutes.
_MAX_SECONDS: Final = 1_200.0
# Mutants that are confirmed together.
_CONFIRMED_TOGETHER: Final = 10
# The exit status that asks for another process: a mutant has spoiled this one.
SPOILED: Final = 77

if MODULES in os.environ:
    install(os.environ[MODULES].split())


class _Hangs(BaseException):
    """Raised in a test that takes too long; no code catches it."""


class Findings:
    """The findings so far: seconds of each test, tests by mutant, and the mutants' fates."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds: dict[str, float] = {}
        self.reaching: defaultdict[str, list[str]] = defaultdict(list)
        self.fates: dict[str, dict[str, Any]] = {}
        # The mutant that is being tried, the one that ended its process, and one that spoiled a process, with its test.
        self.begun = self.ended = ""
        self.spoiled: tuple[str, str] = "", ""
        # Mutants whose fate was found since this run began.
        self.tried: set[str] = set()
        # Mutants that are confirmed alone: one of those that were confirmed together has spoiled a process.
        self.doubted: set[str] = set()
        with suppress(FileNotFoundError):
            for line in path.read_text().splitlines():
                self._take(json.loads(line))

    def _take(self, one: dict[str, Any]) -> None:
        if "spoiled" in one:
            self.spoiled, self.begun = (one["spoiled"], one["by"]), ""
            self.doubted.add(one["spoiled"])
        elif "begun" in one:
            self.begun = one["begun"]
        elif "ended" in one:
            self.ended = self.begun
        elif "confirming" in one:
            self.doubted.update(one["confirming"])
            self.begun = ""
        elif "mutant" in one:
            self.fates[one["mutant"]] = one
            self.tried.add(one["mutant"])
            self.begun = self.ended = ""
        elif "run" in one:
            self.tried.clear()
        else:
            self.seconds[one["test"]] = one["seconds"]
            for name in one["reached"]:
                self.reaching[name].append(one["test"])

    def add(self, **one: Any) -> None:
        """Add a finding."""
        self._take(one)
        with self._path.open("a") as file:
            file.write(json.dumps(one) + "\n")


def pytest_collection(session: pytest.Session) -> None:
    """Let property tests find a failure without looking for its simplest form, the same way each time."""
    del session
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    parent = hypothesis.settings.default
    hypothesis.settings.register_profile("mutants", parent, phases=phases, database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try the mutants in place of running the tests."""
    if MODULES in os.environ and not session.config.option.collectonly:
        settings = os.environ
        Trial(session, Path(settings[FINDINGS]), budget=float(settings[BUDGET]), share=float(settings[SHARE])).run()
    return True


class Trial:
    """One process's part: the tests that were collected, and the findings so far."""

    def __init__(self, session: pytest.Session, findings: Path, *, budget: float, share: float) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._findings = Findings(findings)
        self._budget, self._share = budget, share
        # The tests that killed last, by function and by module: the next mutant is likely theirs too.
        self._killers: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=5))
        # Mutants with which a test failed, and that test, which has to pass without them.
        self._unconfirmed: list[tuple[str, str]] = []

    def run(self) -> None:
        """See what the tests reach, then try each mutant that no test is known to kill with the tests left for it."""
        found = self._findings
        if found.ended:
            # It ended the process, or the process had to be ended; not the one that a run was stopped at.
            found.add(mutant=found.ended, fate="killed", by="the end of its process")
        for name in self._items:
            if name not in found.seconds:
                self._reach(name)
        # The first test with a database makes it: with a mutant, the time for that would look like a hang.
        stored = (name for name, item in self._items.items() if "db" in getattr(item, "fixturenames", ()))
        if (first := next(stored, None)) is not None:
            self._passes(first, _MAX_SECONDS)
        mutants = list(SWITCHES.mutants.values())
        if self._share < 1:
            mutants = random.Random(1).sample(mutants, round(len(mutants) * self._share))
        for mutant in mutants:
            self._try(mutant)
        self._confirm()

    def _reach(self, name: str) -> None:
        SWITCHES.reached.clear()
        passed, seconds = self._passes(name, _MAX_SECONDS)
        reached = sorted(SWITCHES.mutants[number].name for number in SWITCHES.reached) if passed else []
        self._findings.add(test=name, seconds=seconds, reached=reached, passed=passed)

    def _try(self, mutant: Mutant) -> None:
        found, name = self._findings, mutant.name
        before: Mapping[str, Any] = found.fates.get(name, {})
        if before.get("fate") == "killed" or name in found.tried:
            return
        tried: list[str] = list(before.get("tried", ()))
        reaching = [one for one in found.reaching[name] if one in self._items]
        if not (left := set(reaching) - set(tried)):
            if not before:
                found.add(mutant=name, fate="not reached" if not reaching else "survived")
            return
        found.add(begun=name)
        killers = [self._killers[place] for place in (mutant.module, f"{mutant.module}:{mutant.function}")]
        until = time.monotonic() + self._budget
        for test in sorted(
            left, key=lambda one: (*(one not in last for last in reversed(killers)), found.seconds[one])
        ):
            if time.monotonic() > until:
                break
            if (name, test) == found.spoiled and not self._passes(test, 300.0)[0]:
                # It fails at a process's beginning too, by itself: it says nothing of the mutant.
                tried.append(test)
                continue
            SWITCHES.active = mutant.number
            passed, _ = self._passes(test, found.seconds[test] * _SLOWER + _MORE_SECONDS)
            SWITCHES.active = 0
            if not passed:
                for last in killers:
                    last.append(test)
                self._unconfirmed.append((name, test))
                if len(self._unconfirmed) >= _CONFIRMED_TOGETHER or name in found.doubted:
                    self._confirm()
                return
            tried.append(test)
        found.add(mutant=name, fate="survived", tests=len(tried), of=len(reaching), tried=tried)

    def _confirm(self) -> None:
        """Note the mutants as killed whose tests pass without them; end the process where one does not pass."""
        found, mutants = self._findings, self._unconfirmed
        self._unconfirmed = []
        name, test = mutants[0] if len(mutants) == 1 else ("", "")
        if len(mutants) > 1:
            found.add(confirming=[one for one, _ in mutants])
        is_spoiled = not all(self._passes(one, 300.0)[0] for one in dict.fromkeys(by for _, by in mutants))
        if not is_spoiled or (name and (name, test) == found.spoiled):
            for one, by in mutants:
                found.add(mutant=one, fate="killed", by=by)
        elif name:
            # Without the mutant it fails too, so it says nothing of it: another process begins with this mutant.
            found.add(spoiled=name, by=test)
        if is_spoiled:
            pytest.exit("spoiled", returncode=SPOILED)

    def _passes(self, name: str, seconds: float) -> tuple[bool, float]:
        """Run a test; return whether it passed, and how long it took."""
        item: Any = self._items[name]
        _forget_results()
        began = time.monotonic()
        try:
            with _alarm(seconds):
                # Only what belongs to the whole run stays: the database and its tables.
                reports = runtestprotocol(item, log=False, nextitem=self._session)  # type: ignore[arg-type] # its listchain
        except _Hangs:
            return False, time.monotonic() - began
        return all(not one.failed for one in reports), time.monotonic() - began


def _forget_results() -> None:
    """Empty the caches of mutated modules: a result that another mutant computed says nothing of this one."""
    # Not before the switches are installed: it imports the product.
    from apps.kernel.concurrency.identity_cache import IdentityCache

    for module in {mutant.module for mutant in SWITCHES.mutants.values()} & sys.modules.keys():
        for value in vars(sys.modules[module]).values():
            if isinstance(value, IdentityCache):
                value._known.clear()
            elif isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
