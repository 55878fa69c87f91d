"""Holds of lines: credits that the ledger keeps for what a provider's batch API answers later, and gives back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django.db import transaction

from apps.billing import balances, ledger

# No worker claims a parked line, and its batch does not expire, before its job has ended.
FAR: Final = timedelta(days=30)
# No hold lasts longer: a batch's window is a day, and its provider's as long.
_MAX_HOLD: Final = timedelta(days=4)
# Holds released by one transaction.
_MAX_TOGETHER: Final = 200


def give_back(references: Iterable[UUID]) -> None:
    """Release the holds of lines, by the ids of their records, when the caller's transaction commits."""
    changed = ledger.give_back(list(references))
    transaction.on_commit(partial(balances.publish, changed))


def give_back_forgotten(now: datetime) -> int:
    """Release the holds of lines that were removed with their batch; return how many. Raises DatabaseError."""
    first = UUID(int=int((now - FAR).timestamp() * 1000) << 80)
    forgotten = ledger.find_forgotten_holds(first, now - _MAX_HOLD)
    for start in range(0, len(forgotten), _MAX_TOGETHER):
        with transaction.atomic():
            give_back(forgotten[start : start + _MAX_TOGETHER])
    return len(forgotten)
