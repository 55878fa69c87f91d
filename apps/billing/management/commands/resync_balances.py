"""`manage.py resync_balances`: repair the copies of balances in Valkey from the database.

The gateway does this at startup, after a failover and after a restore; run it by hand when in doubt. Safe while
serving.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.billing.balance_copies import DivergentCopy, Resynced, resync
from apps.kernel.money import NANO, plain

_WORDS = {"organization": ("organization", "credits"), "key": ("API key", "usage")}
# Changes that are listed individually.
_MAX_TOLD = 100


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Compare the copies of balances in Valkey with the database and repair differences."

    def handle(self, *args: Any, **options: Any) -> None:
        """Repair the copies and list the changes. Raises CommandError if a store does not answer."""
        try:
            done = resync()
        except (DatabaseError, RedisError) as error:
            raise CommandError(f"A store did not answer ({type(error).__name__}): try again") from error
        for one in done.changed[:_MAX_TOLD]:
            self.stdout.write(_line_of(one))
        if len(done.changed) > _MAX_TOLD:
            self.stdout.write(f"and {len(done.changed) - _MAX_TOLD} more")
        self.stdout.write(summary_of(done))


def summary_of(done: Resynced) -> str:
    """Return a one-line summary."""
    words = f"compared {done.compared} copies, changed {len(done.changed)}, corrected the held amount of {done.holds}"
    if done.epoch is None:
        return words
    return f"{words}; the database had lost changes: epoch {done.epoch} of the ledger has begun"


def _line_of(one: DivergentCopy) -> str:
    owner, balance = _WORDS[one.true.scope]
    before, after = plain(Decimal(one.amount) / NANO), plain(one.true.amount)
    return f"{owner} {one.true.id}: {balance} {before} -> {after}"
