"""`script/chaos --rolling`: every node is restarted in turn while requests go through, and none of them may fail.

With `--from COMMIT` each node goes back to the code of that commit first, on the tables of this one, and then to this
one again: two versions at once, on the way back and on the way forth. Clients never ask again. Exit 1 when a request
failed or is not on record once. Ends what it started.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import requests

from tests.chaos.fleet import Fleet
from tests.stack.books import books_of
from tests.stack.chaos import usage_in
from tests.stack.product import PROJECT

_CLIENTS = 4
# Beyond any pace at which these clients ask.
SETTINGS = {"RATE_LIMIT_ENTERPRISE": "10000000"}


class Askers:
    """Clients with kept connections that follow the load balancer and ask each question once."""

    def __init__(self, fleet: Fleet) -> None:
        self.costs: dict[str, Decimal] = {}
        self.failures: list[str] = []
        self.over = threading.Event()
        self._fleet = fleet
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run) for _ in range(_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._fleet.demo['apiKey']}"}
        body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "one two three"}]}
        with requests.Session() as session:
            while not self.over.is_set():
                request_id, url = f"rolling-{next(self._numbers)}", self._fleet.url
                try:
                    answer = session.post(
                        f"{url}/v1/chat/completions",
                        json=body,
                        headers={**headers, "x-request-id": request_id},
                        timeout=60,
                    )
                except requests.RequestException as error:
                    self.failures.append(repr(error)[:200])
                    continue
                if answer.status_code == 200:
                    self.costs[request_id] = Decimal(usage_in(answer.content)["cost_usd_total"])
                else:
                    self.failures.append(f"{answer.status_code} {answer.text[:200]}")


@contextmanager
def code_of(commit: str) -> Iterator[Path]:
    """Have the code of a commit in a folder of its own for as long as the block."""
    with TemporaryDirectory(prefix="older-") as folder:
        path = Path(folder, "code")
        git = ["git", "-C", str(PROJECT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def roll(fleet: Fleet, askers: Askers, count: int, versions: list[Path]) -> Counter[str]:
    """Restart every node in turn on each of the versions, over and over until so many were asked; return how often."""
    done: Counter[str] = Counter()
    while True:
        for code in versions:
            for node in fleet.nodes.all:
                node.restart(code)
                done[node.role] += 1
                print(f"{node.name} restarted, {len(askers.costs)} answered, {len(askers.failures)} failed", flush=True)
        if len(askers.costs) + len(askers.failures) >= count:
            return done


def find_problems(fleet: Fleet, askers: Askers) -> list[str]:
    """Return the problems in words."""
    problems = [f"{len(askers.failures)} failed, as {askers.failures[0]}"] if askers.failures else []
    books = books_of(fleet, patience=120)
    rows = Counter(row.request_id for row in books.rows)
    costs = {row.request_id: row.cost for row in books.rows}
    if wrong := [one for one, cost in askers.costs.items() if rows[one] != 1 or costs[one] != cost]:
        problems.append(f"{len(wrong)} are not on record once at the cost that was told, as {wrong[0]}")
    charged = sum(1 for row in books.rows if row.cost and books.ledger.get(("usage", row.id)) == (-row.cost, row.cost))
    if charged != sum(1 for row in books.rows if row.cost):
        problems.append("not every row is charged once")
    if books.left or books.differences:
        problems.append(f"left over: {books.left}; differences: {books.differences}")
    return problems


def main() -> int:
    """Restart all in turn under load; return 1 when a request failed or is not on record once."""
    words = argparse.ArgumentParser(prog="script/chaos --rolling", description=__doc__.splitlines()[0])
    words.add_argument("--requests", type=int, default=50_000, help="at least")
    words.add_argument("--from", dest="older", metavar="COMMIT", help="the older version that nodes go back to first")
    words.add_argument(
        "--direct", action="store_true", help="without PgBouncer, before which older versions do not run"
    )
    asked = words.parse_args()
    with ExitStack() as ends:
        folder = Path(ends.enter_context(TemporaryDirectory(prefix="rolling-", ignore_cleanup_errors=True)))
        older = [ends.enter_context(code_of(asked.older))] if asked.older else []
        fleet = Fleet(folder / "fleet", pooled=not asked.direct, **SETTINGS)
        ends.callback(fleet.stop)
        began, askers = time.monotonic(), Askers(fleet)
        try:
            done = roll(fleet, askers, asked.requests, [*older, PROJECT])
        finally:
            askers.stop()
        took = time.monotonic() - began
        problems = find_problems(fleet, askers)
    total = len(askers.costs) + len(askers.failures)
    print(f"{total} requests in {took:.0f} s; restarted: {dict(done)}; failed: {len(askers.failures)}")
    print("\n".join(problems) or "every answer is on record and charged once")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
