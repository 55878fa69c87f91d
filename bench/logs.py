"""`script/bench logs`: how long search, activity, export, and pages of operators and tenants take on a large log.

Ordinary requests, in this process, to a throw-away PostgreSQL with `--rows` generated rows; milliseconds, the median of
several runs and the slowest. `--home` keeps the database and finds it again: making ten million rows takes a while.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import django

from gateway_project import embedded


def main() -> None:
    """Make the rows unless they are there, measure, print a table; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--home", type=Path, help="keep the database here, or use the one that is")
    parser.add_argument("--explain", type=Path, help="write every question's plan to this file")
    parser.add_argument("--only", default="", help="only questions with this in their names")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args()
    with ExitStack() as at_the_end:
        opened = embedded.running(chosen.home, durable=False) if chosen.home else embedded.throw_away()
        stores = at_the_end.enter_context(opened)
        os.environ.update(
            DJANGO_SETTINGS_MODULE="gateway_project.settings",
            DATABASE_URL=stores.database_url,
            REDIS_URL=stores.redis_url,
            GATEWAY_HOME=str(stores.home),
            GATEWAY_MODE="development",
        )
        django.setup()
        # They need the settings.
        from bench import log_questions

        cast = log_questions.prepared(chosen.rows, tell)
        figures = log_questions.measure(cast, chosen.only, chosen.explain, tell)
        log_questions.show(figures)
        if chosen.json:
            chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


def tell(words: str) -> None:
    """Say how far it has come."""
    print(words, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
