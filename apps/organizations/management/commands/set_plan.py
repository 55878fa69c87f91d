"""`manage.py set_plan ORGANIZATION PLAN`: move an organization to another plan."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.organizations.access import UnclearOrganizationError, find_organization
from apps.organizations.actions import set_plan
from apps.organizations.models import Plan


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Move an organization to another plan, without a term."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read who gets which plan."""
        parser.add_argument("organization", help="its id, or its exact name")
        parser.add_argument("plan", choices=Plan.values)

    def handle(self, *args: Any, **options: Any) -> None:
        """Set the plan."""
        try:
            organization = find_organization(options["organization"])
        except UnclearOrganizationError as error:
            raise CommandError(str(error)) from error
        set_plan(organization=organization, plan=Plan(options["plan"]))
        self.stdout.write(f"{organization.name} ({organization.id}) is on the plan {organization.plan}")
