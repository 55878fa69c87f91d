"""`manage.py resync_balances`: make the copies of balances in Valkey copies of the database's again.

Done by itself at start, after a failover and after a restore; by hand whenever there is doubt. Safe while serving.
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
# Changes that are told one by one.
_MOST_TOLD = 100


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Compare the copies of balances in Valkey with the database, and mend what differs."

    def handle(self, *args: Any, **options: Any) -> None:
        """Mend, and tell what was changed. Raises CommandError when a store does not answer."""
        try:
            done = resync()
        except (DatabaseError, RedisError) as error:
            raise CommandError(f"A store did not answer ({type(error).__name__}): try again") from error
        for one in done.changed[:_MOST_TOLD]:
            self.stdout.write(_line_of(one))
        if len(done.changed) > _MOST_TOLD:
            self.stdout.write(f"and {len(done.changed) - _MOST_TOLD} more")
        self.stdout.write(summary_of(done))


def summary_of(done: Resynced) -> str:
    """Return what came of it on a line."""
    words = f"compared {done.compared} copies, changed {len(done.changed)}, corrected what is held on {done.holds}"
    if done.epoch is None:
        return words
    return f"{words}; the database was behind what it had told: epoch {done.epoch} of the ledger has begun"


def _line_of(one: DivergentCopy) -> str:
    owner, balance = _WORDS[one.true.scope]
    before, after = plain(Decimal(one.amount) / NANO), plain(one.true.amount)
    return f"{owner} {one.true.id}: {balance} {before} -> {after}"
