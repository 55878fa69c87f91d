"""`manage.py grant_credits ORGANIZATION AMOUNT`: give an organization credits."""

from __future__ import annotations

from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.billing import ledger
from apps.kernel.ids import find_id
from apps.kernel.money import plain
from apps.organizations.models import Organization


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Give an organization credits; prints the new balance."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read who gets how much."""
        parser.add_argument("organization", help="its id, or its exact name")
        parser.add_argument("amount", help="USD, positive, at most 12 digits after the point")
        parser.add_argument("--description", default="Granted by an operator", help="what the organization reads")

    def handle(self, *args: Any, **options: Any) -> None:
        """Grant, and print the new balance."""
        organization = _find(options["organization"])
        try:
            ledger.grant(organization.id, Decimal(options["amount"]), options["description"])
        except (ValueError, InvalidOperation) as error:
            raise CommandError(
                "AMOUNT must be a positive number of USD with at most 12 digits after the point"
            ) from error
        organization.refresh_from_db(fields=["credits"])
        self.stdout.write(f"{organization.name} has {plain(organization.credits)} USD")


def _find(text: str) -> Organization:
    """Return the organization by id or exact name. Raises CommandError when there is none, or more than one."""
    identifier = find_id(text)
    found = Organization.objects.filter(id=identifier) if identifier else Organization.objects.filter(name=text)
    match list(found.order_by("created_at")):
        case [organization]:
            return organization
        case []:
            raise CommandError(f"There is no organization {text!r}")
        case several:
            ids = ", ".join(str(one.id) for one in several)
            raise CommandError(f"{len(several)} organizations are called {text!r}; say which by id: {ids}")
