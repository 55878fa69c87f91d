"""`manage.py catalog propose --source KIND=PLACE …`: prices of public lists against the catalog's.

Shows a difference by model and changes nothing. With `--apply` or `--accept` it applies the named proposals, as the
operators' page does.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from apps.catalog.actions import apply_proposals, compare_now
from apps.catalog.files import InvalidFiles
from apps.catalog.price_lists import KINDS, InvalidList, fetch_list
from apps.catalog.proposals import ListComparison, Proposal, describe
from apps.catalog.stored_proposals import store
from apps.kernel.errors import InvalidRequest


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
        """Show the proposals; apply the accepted ones."""
        today = datetime.now(UTC).date()
        wanted, accepts = options["apply"], options["accept"]
        try:
            lists = [fetch_list(*self._source(one)) for one in options["source"]]
            comparison = compare_now(lists)
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
            elif chosen:
                with transaction.atomic():
                    rows = store(ListComparison(chosen, []), timezone.now(), revives=True)
                    loaded = apply_proposals(rows, "catalog propose")
                self.stdout.write(f"{len(rows)} applied. {loaded}")
            else:
                self.stdout.write("Nothing was changed: all proposals need a decision. Name them with --apply.")
        except (InvalidFiles, InvalidList) as error:
            raise CommandError(str(error)) from error
        except InvalidRequest as error:
            raise CommandError(error.message) from error

    def _source(self, stated: str) -> tuple[str, str]:
        kind, separator, place = stated.partition("=")
        if not separator or kind not in KINDS:
            raise CommandError(f"--source must be KIND=PLACE with a kind of {', '.join(KINDS)}; it is {stated!r}")
        return kind, place


def _chosen(comparison: ListComparison, wanted: list[str], accepts: bool) -> list[Proposal]:
    """Return the accepted proposals. Raises CommandError for a name without a proposal, and for a disputed one."""
    named = {one.name for one in comparison.proposals}
    disputed = {one.name for one in comparison.proposals if one.disputed}
    for name in wanted:
        if name not in named:
            raise CommandError(f"no proposal for {name}; nothing was changed")
        if name in disputed:
            raise CommandError(f"the sources disagree on {name}; run again with one --source. Nothing was changed")
    return [one for one in comparison.proposals if one.name in wanted or (accepts and not one.reasons)]
