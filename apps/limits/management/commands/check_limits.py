"""`manage.py check_limits`: does every counter of a limit equal the sum of its requests?"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from apps.kernel.money import plain
from apps.limits.counters import find_mismatches


class Command(BaseCommand):
    """See the module's docstring; exits with 1 when a counter differs."""

    help = "Compare every counter of a limit with the sum of what its settled requests added."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each difference on a line of its own."""
        found = find_mismatches()
        for one in found:
            self.stdout.write(
                f"limit {one.limit_id or 'unknown'}, counter {one.counter_id}: used {plain(one.used)}, "
                f"requests {plain(one.charged)}"
            )
        if found:
            sys.exit(1)
        self.stdout.write("Every counter equals the sum of its requests.")
