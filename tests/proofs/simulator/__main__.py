"""`script/simulate`: draws histories by seeds, on doubles of the stores or real ones, and shows the first that fails.

That history is shortened. Exit 1 also when a run of some length never reached a rare branch.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.proofs.simulator.stores import Stores

# Histories that reach every rare branch.
_ENOUGH = 100


def main() -> int:
    """Run the histories that the arguments ask for; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="script/simulate")
    parser.add_argument("--seed", type=int, default=1, help="the first history's seed; each next one has the next")
    parser.add_argument("--steps", type=int, default=150, help="moves of a history before everything comes to rest")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--mutant", help="the name of a rule to take away, to see it noticed")
    parser.add_argument("--real", action="store_true", help="use a real PostgreSQL and Valkey instead of doubles")
    arguments = parser.parse_args()
    for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL"):
        # Never the stores of an environment: a history empties them.
        os.environ.pop(name, None)
    with _real_stores() if arguments.real else _doubles() as stores:
        return _run(arguments, stores)


@contextmanager
def _doubles() -> Iterator[Stores]:
    with TemporaryDirectory() as home:
        # Addresses at which nothing answers: a call that no double takes fails.
        _set_up("postgres://simulated@127.0.0.1:1/simulated", "redis://127.0.0.1:1/0", "redis://127.0.0.1:1/1", home)
        from tests.proofs.simulator.stores import Doubles

        doubles = Doubles()
        with doubles.installed():
            yield doubles


@contextmanager
def _real_stores() -> Iterator[Stores]:
    from gateway_project import embedded

    with embedded.throw_away() as stores:
        _set_up(stores.database_url, stores.redis_url, stores.cache_url, str(stores.home))
        from django.core.management import call_command

        from tests.proofs.simulator.stores import RealStores

        call_command("migrate", verbosity=0)
        yield RealStores()


def _set_up(database_url: str, redis_url: str, cache_url: str, home: str) -> None:
    import django
    import structlog

    os.environ.update(
        DJANGO_SETTINGS_MODULE="gateway_project.settings",
        DATABASE_URL=database_url,
        REDIS_URL=redis_url,
        CACHE_URL=cache_url,
        GATEWAY_HOME=home,
        GATEWAY_MODE="development",
    )
    django.setup()
    # The modules live as long as the run: without them each look for garbage is short.
    gc.freeze()
    # Faults are meant; what comes of them is in the books.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _run(arguments: argparse.Namespace, stores: Stores) -> int:
    from tests.proofs.simulator.mutants import MUTANTS
    from tests.proofs.simulator.search import draw, shrink
    from tests.proofs.simulator.stores import BRANCHES

    began, worked = time.monotonic(), time.process_time()
    with MUTANTS[arguments.mutant]() if arguments.mutant else nullcontext():
        for seed in range(arguments.seed, arguments.seed + arguments.histories):
            history = draw(seed, arguments.steps, stores)
            if history.problems:
                sys.stdout.write(f"{history.problems}\nShortening seed {seed} …\n")
                sys.stdout.flush()
                sys.stdout.write(f"{shrink(history, stores)}\n")
                return 1
    seconds, worked = time.monotonic() - began, time.process_time() - worked
    sys.stdout.write(
        f"{arguments.histories} histories of {arguments.steps} moves kept every promise: {seconds:.1f} s, "
        f"{worked:.1f} s of this process's time; {arguments.histories / seconds * 3600:,.0f} histories an hour\n"
    )
    for branch in sorted(BRANCHES | set(stores.reached)):
        sys.stdout.write(f"{stores.reached[branch]:>12,}  {branch}\n")
    missed = BRANCHES - set(+stores.reached)
    if missed and arguments.histories >= _ENOUGH:
        sys.stdout.write(f"Never reached: {', '.join(sorted(missed))}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
