"""`manage.py load_catalog`: the data files into the tables."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.catalog.files import InvalidFiles
from apps.catalog.load import load


class Command(BaseCommand):
    """See the module's docstring; safe to run at every start."""

    help = "Bring the catalog's tables in line with the data files; what operators changed is kept."

    def handle(self, *args: Any, **options: Any) -> None:
        """Load, and print what changed on one line."""
        try:
            self.stdout.write(str(load()))
        except InvalidFiles as error:
            raise CommandError(str(error)) from error
