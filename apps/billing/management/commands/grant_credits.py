"""`manage.py grant_credits ORGANIZATION AMOUNT`: give an organization credits."""

from __future__ import annotations

from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.billing import gifts
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import plain
from apps.organizations.access import UnclearOrganizationError, find_organization


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
        try:
            organization = find_organization(options["organization"])
        except UnclearOrganizationError as error:
            raise CommandError(str(error)) from error
        try:
            amount = Decimal(options["amount"])
            gifts.give(organization=organization, amount=amount, description=options["description"])
        except (InvalidRequest, InvalidOperation) as error:
            raise CommandError(
                "AMOUNT must be a positive number of USD with at most 12 digits after the point"
            ) from error
        organization.refresh_from_db(fields=["credits"])
        self.stdout.write(f"{organization.name} has {plain(organization.credits)} USD")
