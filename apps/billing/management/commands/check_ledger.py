"""`manage.py check_ledger`: does every balance equal the sum of its ledger entries?"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from apps.billing.reconciliation import find_mismatches
from apps.kernel.money import plain

_WORDS = {"organization": ("organization", "credits"), "key": ("API key", "usage")}


class Command(BaseCommand):
    """See the module's docstring; exits with 1 when a balance differs."""

    help = "Compare every organization's credits and every API key's usage with the sums of their ledger entries."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each difference on a line of its own."""
        found = find_mismatches()
        for one in found:
            owner, balance = _WORDS[one.scope]
            self.stdout.write(f"{owner} {one.id}: {balance} {plain(one.balance)}, entries {plain(one.entries)}")
        if found:
            sys.exit(1)
        self.stdout.write("Every balance equals the sum of its ledger entries.")
