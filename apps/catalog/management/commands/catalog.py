"""`manage.py catalog propose --source KIND=PLACE …`: prices of public lists against the catalog's.

Shows a difference by model and changes nothing. With `--apply` or `--accept` it writes the named proposals into
CATALOG_DIR and loads them.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.catalog.accepted_prices import accept, operator_prices
from apps.catalog.files import InvalidFiles, read_files
from apps.catalog.load import load
from apps.catalog.price_lists import KINDS, InvalidList, fetch_list
from apps.catalog.proposals import ListComparison, Proposal, compare, describe


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Compare the catalog's prices with public price lists, and accept proposals of theirs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read the lists and the proposals to accept."""
        propose = parser.add_subparsers(dest="subcommand", required=True).add_parser("propose", help=self.help)
        propose.add_argument(
            "--source",
            action="append",
            required=True,
            metavar="KIND=PLACE",
            help=f"a list ({', '.join(KINDS)}) at an address or in a file; repeat it for several",
        )
        propose.add_argument(
            "--apply", nargs="+", default=[], metavar="PROVIDER/MODEL", help="accept these, after you checked them"
        )
        propose.add_argument("--accept", action="store_true", help="accept all that need no decision of a person")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show the proposals; write and load the accepted ones."""
        today = datetime.now(UTC).date()
        wanted, accepts = options["apply"], options["accept"]
        own: Path | None = settings.CATALOG_DIR
        if (wanted or accepts) and own is None:
            raise CommandError("CATALOG_DIR is not set; accepted prices are written there")
        try:
            lists = [fetch_list(*self._source(one)) for one in options["source"]]
            held = operator_prices(own) if own else frozenset()
            comparison = compare(read_files(own=own), lists, today, held)
            chosen = _chosen(comparison, wanted, accepts)
            for note in comparison.notes:
                self.stdout.write(note)
            for proposal in comparison.proposals:
                for line in describe(proposal, today):
                    self.stdout.write(line)
            decided = sum(bool(one.reasons) for one in comparison.proposals)
            self.stdout.write(f"{len(comparison.proposals)} proposals, {decided} for a person to decide (!)")
            if not (wanted or accepts):
                self.stdout.write("Nothing was changed. --apply PROVIDER/MODEL … or --accept accepts proposals.")
            elif own and chosen:
                accept(own, chosen)
                sources = sorted({source for one in chosen for source in one.sources})
                loaded = load(author=f"catalog propose: {', '.join(sources)}")
                self.stdout.write(f"{len(chosen)} accepted in {own / 'accepted'}. {loaded}")
            else:
                self.stdout.write("Nothing was changed: all proposals need a decision. Name them with --apply.")
        except (InvalidFiles, InvalidList) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{own} cannot be written: {error.strerror}") from error

    def _source(self, stated: str) -> tuple[str, str]:
        kind, separator, place = stated.partition("=")
        if not separator or kind not in KINDS:
            raise CommandError(f"--source must be KIND=PLACE with a kind of {', '.join(KINDS)}; it is {stated!r}")
        return kind, place


def _chosen(comparison: ListComparison, wanted: list[str], accepts: bool) -> list[Proposal]:
    """Return the accepted proposals. Raises CommandError for a name without a proposal, and for a disputed one."""
    named = {one.name: one for one in comparison.proposals}
    for name in wanted:
        if name not in named:
            raise CommandError(f"no proposal for {name}; nothing was changed")
        if named[name].disputed:
            raise CommandError(f"the sources disagree on {name}; run again with one --source. Nothing was changed")
    return [one for one in comparison.proposals if one.name in wanted or (accepts and not one.reasons)]
