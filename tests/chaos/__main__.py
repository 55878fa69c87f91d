"""`script/chaos [fault …]`: the real product under load, struck by one fault after the other, and a scorecard.

Exit 1 when anything was lost, doubled, overspent or otherwise not kept, or when a whole run has not reached a rare
branch (`branches.py`). Ends what it started.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.branches import Branches
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.fleet import FLEET_FAULTS, FleetScene
from tests.chaos.scene import SETTINGS, Scene
from tests.chaos.scorecard import HEADER, Before, Score, score, skipped
from tests.stack.books import books_of
from tests.support.valkey_cluster import ON_CLUSTER
from tests.support.valkey_sentinels import ON_SENTINELS

# Seconds of load before a fault, and at most until all is well again after it.
_BEFORE, _MAX_AFTER = 2.0, 60.0


class Run:
    """One run: the product that faults share, until one of them has spoiled it."""

    def __init__(self, seconds: float, clients: int, chance: random.Random, kind: type[Scene] = Scene) -> None:
        self._kind = kind
        # Questions of clients that ask again: those that were answered in the end, and those that were not.
        self.held = self.given_up = 0
        self.branches = Branches()
        self._seconds, self._clients, self._chance = seconds, clients, chance
        self._ends = ExitStack()
        self._scene: Scene | None = None
        # Whether no fault has struck it yet.
        self._is_new = True

    def strike(self, fault: Fault) -> Score:
        """Let a fault strike under load; return what came of it."""
        if fault.alone:
            self.close()
        scene = self._scene or self._start(fault)
        try:
            card = self._judged(scene, fault)
        except BaseException:
            self.close()
            raise
        if fault.alone or card.problems:
            # Its leftovers would count as problems of the next fault.
            self.close()
        return card

    def close(self) -> None:
        """Stop the product, if one runs."""
        self._scene = None
        self._ends.close()

    def _start(self, fault: Fault) -> Scene:
        folder = Path(self._ends.enter_context(TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)))
        folder.chmod(0o711)
        disk = self._ends.enter_context(fault.home(folder)) if fault.home else folder
        own = self._ends.enter_context(fault.settings(folder)) if fault.settings else {}
        home = disk / "home"
        home.mkdir()
        scene = self._kind(home, self._chance, {**SETTINGS, **own})
        self._ends.callback(scene.close)
        self._scene, self._is_new = scene, True
        return scene

    def _judged(self, scene: Scene, fault: Fault) -> Score:
        earlier = books_of(scene.product, patience=20)
        if self._is_new:
            self.branches.begin(earlier.epochs)
            self._is_new = False
        before = Before({row.id for row in earlier.rows}, scene.credits(), scene.begin(self._clients))
        clients = scene.clients
        assert clients is not None
        time.sleep(_BEFORE)
        struck = fault.strike(scene, self._seconds)
        returned, recovered, whole = time.monotonic(), None, None
        over, scene.over_at = scene.over_at or returned, None
        while time.monotonic() - returned < _MAX_AFTER and (recovered is None or whole is None):
            time.sleep(0.2)
            recovered = recovered or clients.recovered_at(over)
            whole = whole or (time.monotonic() if scene.is_whole() else None)
        clients.stop()
        self.held += clients.seen.held
        self.given_up += clients.seen.given_up
        recovery = None
        if recovered is not None and whole is not None:
            # Parts that were there all the time are no news.
            recovery = max(recovered - over, whole - over if whole - returned > 0.5 else 0.0)
        books = books_of(scene.product)
        if self._kind is Scene:
            # Nodes of a fleet count each for themselves.
            self.branches.add(scene.product.metrics(), books.epochs)
        return score(fault.name, struck, scene, clients, books, before, recovery)


def main() -> int:
    """Let the faults strike that are named, else all; return 1 when one was not survived as promised."""
    fleet = "--fleet" in sys.argv[1:]
    known = {fault.name: fault for fault in (FLEET_FAULTS if fleet else FAULTS)}
    words = argparse.ArgumentParser(prog="script/chaos", description=__doc__.splitlines()[0])
    words.add_argument("--fleet", action="store_true", help="three web nodes and two settlers on shared stores")
    words.add_argument("--cluster", action="store_true", help="with --fleet: over a Valkey Cluster")
    words.add_argument("--sentinels", action="store_true", help="with --fleet: over a primary that sentinels name")
    words.add_argument(
        "--branches", action="store_true", help="fail unless rare branches were reached, as a whole run does"
    )
    words.add_argument("names", nargs="*", metavar="fault", help=f"of {', '.join(known)}; all unless named")
    words.add_argument("--seconds", type=float, default=8.0, help="that each fault lasts")
    words.add_argument("--seed", default=None, help="repeats a run's draws")
    words.add_argument("--clients", type=int, default=10, help="that ask all the time")
    asked = words.parse_args()
    if unknown := set(asked.names) - set(known):
        words.error(f"no fault is called {', '.join(sorted(unknown))}")
    seed = asked.seed or str(random.SystemRandom().randrange(10**9))
    print(f"seed {seed}, each fault lasts {asked.seconds:g} s, {asked.clients} clients\n\n{HEADER}", flush=True)
    if asked.cluster:
        os.environ[ON_CLUSTER] = "1"
    if asked.sentinels:
        os.environ[ON_SENTINELS] = "1"
    run = Run(asked.seconds, asked.clients, random.Random(seed), FleetScene if fleet else Scene)
    cards, broken, skips = list[Score](), list[str](), 0
    try:
        for fault in (known[name] for name in asked.names or known):
            if why := fault.missing():
                skips += 1
                print(skipped(fault.name, why), flush=True)
                continue
            try:
                card = run.strike(fault)
            except Exception as error:  # noqa: BLE001 - a fault that cannot be judged is printed, and the others run
                broken.append(fault.name)
                print(f"| {fault.name} | {'- | ' * 13}not judged: {str(error).splitlines()[0][:200]} |", flush=True)
                continue
            cards.append(card)
            print(card.row(), flush=True)
    finally:
        run.close()
    print()
    for name in asked.names or known:
        print(f"- **{name}**: {known[name].about}")
    totals = {
        "faults": sum(card.struck for card in cards),
        "answered": sum(card.answered for card in cards),
        "lost": sum(len(card.lost) for card in cards),
        "doubled": sum(len(card.doubled) for card in cards),
        "wrong": sum(len(card.wrong) for card in cards),
        "overspent": f"{sum((card.overspent for card in cards), Decimal()).normalize():f}",
    }
    print(f"\n{', '.join(f'{name} {count}' for name, count in totals.items())}")
    if fleet:
        print(f"questions, each asked up to three times: {run.held} answered, {run.given_up} given up")
    failed = [card.fault for card in cards if card.problems] + broken
    kept = f"{len(cards) + len(broken) - len(failed)} of {len(cards) + len(broken)} kept"
    print(f"{kept}{f', {skips} skipped' if skips else ''}{': not ' + ', '.join(failed) if failed else ''}")
    missed = list[str]()
    if not fleet:
        print(f"\n{run.branches.report()}")
        missed = run.branches.missed([card.fault for card in cards])
        if missed:
            print(f"never reached, although faults struck that lead there: {', '.join(missed)}")
    return 1 if failed or (missed and (asked.branches or not asked.names)) else 0


if __name__ == "__main__":
    sys.exit(main())
