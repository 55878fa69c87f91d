"""`script/simulate`: draws histories by seeds, on stores of its own, and shows the first that fails, shortened."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time


def main() -> int:
    """Run the histories that the arguments ask for; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="script/simulate")
    parser.add_argument("--seed", type=int, default=1, help="the first history's seed; each next one has the next")
    parser.add_argument("--steps", type=int, default=150, help="moves of a history before everything comes to rest")
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--mutant", help="the name of a rule to take away, to see it noticed")
    arguments = parser.parse_args()
    from gateway_project import embedded

    for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL"):
        # Never the stores of an environment: a history empties them.
        os.environ.pop(name, None)
    with embedded.throw_away() as stores:
        os.environ.update(
            DJANGO_SETTINGS_MODULE="gateway_project.settings",
            DATABASE_URL=stores.database_url,
            REDIS_URL=stores.redis_url,
            CACHE_URL=stores.cache_url,
            GATEWAY_HOME=str(stores.home),
            GATEWAY_MODE="development",
        )
        _set_up()
        return _run(arguments)


def _set_up() -> None:
    import django
    import structlog
    from django.core.management import call_command

    django.setup()
    # Faults are meant; what comes of them is in the books.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    call_command("migrate", verbosity=0)


def _run(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from tests.proofs.simulator.mutants import MUTANTS
    from tests.proofs.simulator.search import draw, shrink

    began, moves = time.monotonic(), 0
    with MUTANTS[arguments.mutant]() if arguments.mutant else nullcontext():
        for seed in range(arguments.seed, arguments.seed + arguments.histories):
            history = draw(seed, arguments.steps)
            moves += len(history.moves)
            if history.problems:
                sys.stdout.write(f"{history.problems}\nShortening seed {seed} …\n")
                sys.stdout.flush()
                sys.stdout.write(f"{shrink(history)}\n")
                return 1
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{arguments.histories} histories of {arguments.steps} moves kept every promise: "
        f"{seconds:.1f} s, {arguments.histories / seconds * 3600:,.0f} histories an hour\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
