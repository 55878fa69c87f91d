"""`manage.py load_catalog [--diff]`: the data files into the tables, or what that would change.

With `--diff` nothing is changed; it ends with 1 when there are differences, as `check_ledger` does, and 0 without.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.catalog.files import InvalidFiles
from apps.catalog.load import find_differences, load


class Command(BaseCommand):
    """See the module's docstring; safe to run at every start."""

    help = "Bring the catalog's tables in line with the data files; what operators changed is kept."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read whether to change anything."""
        parser.add_argument(
            "--diff",
            action="store_true",
            help="only print what would change (+ added, ~ changed, - withdrawn); exit 1 if anything would",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load, and print what changed on one line; or print what would."""
        try:
            if not options["diff"]:
                self.stdout.write(str(load()))
                return
            found = find_differences()
        except InvalidFiles as error:
            raise CommandError(str(error)) from error
        for line in found:
            self.stdout.write(line)
        if found:
            sys.exit(1)
        self.stdout.write("The tables say what the files say.")
