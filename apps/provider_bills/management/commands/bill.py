"""`gateway bill import FILE --provider P` and `gateway bill read`: a provider's bill from a file, or from its API."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.kernel.money import plain
from apps.provider_bills.actions import import_bill, read_due_bills
from apps.provider_bills.models import BillComparison
from apps.provider_bills.readings import apis_in_use
from apps.provider_bills.stated_lines import InvalidBill


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Read a provider's bill from its API or a file, and compare it with the request log."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read the subcommand, and the file with its provider."""
        commands = parser.add_subparsers(dest="subcommand", required=True)
        commands.add_parser("read", help="read the bills of all providers whose keys are set")
        file = commands.add_parser("import", help="import a bill from a CSV or JSON file, all lines or none")
        file.add_argument("file", type=Path, help="our columns, or Google Cloud's billing export")
        file.add_argument("--provider", required=True, help="the provider's id in the catalog, such as google")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read or import, and show what differs."""
        if options["subcommand"] == "import":
            self._import(options["provider"], options["file"])
        else:
            self._read()

    def _import(self, provider: str, path: Path) -> None:
        try:
            reading, compared = import_bill(provider, path, timezone.now())
        except InvalidBill as error:
            raise CommandError(f"{path}: {error}") from error
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from error
        self.stdout.write(f"{reading.lines} lines, {reading.new_lines} of them new or changed")
        self._show(compared)

    def _read(self) -> None:
        if not apis_in_use():
            raise CommandError("no provider's administration key is set; docs/billing.md names the settings")
        readings, compared = read_due_bills(timezone.now())
        for one in readings:
            words = one.problem or f"{one.lines} lines, {one.new_lines} of them new or changed"
            self.stdout.write(f"{one.provider}: {words}")
        self._show(compared)

    def _show(self, compared: Iterable[BillComparison]) -> None:
        for one in compared:
            causes = ", ".join(f"{count} {cause}" for cause, count in sorted(one.counts.items())) or "no difference"
            billed = "no amount" if one.billed_cost is None else f"{plain(one.billed_cost)} USD"
            mark = " (above the threshold)" if one.is_above else ""
            self.stdout.write(
                f"{one.provider} {one.day}: billed {billed}, logged {plain(one.logged_cost)} USD: {causes}{mark}"
            )
