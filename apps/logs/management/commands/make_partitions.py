"""`manage.py make_partitions`: the log's partitions from yesterday to a week ahead."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from apps.logs import partitions


class Command(BaseCommand):
    """See the module's docstring; safe to run at every start, and by several at once."""

    help = "Make the request log's partitions that are missing."

    def handle(self, *args: Any, **options: Any) -> None:
        """Make them, and print which."""
        made = partitions.ensure(partitions.upcoming(timezone.now()))
        self.stdout.write(f"made {', '.join(map(str, made))}" if made else "every partition is there")
