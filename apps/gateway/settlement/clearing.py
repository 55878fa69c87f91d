"""Clearing accounts: money in flight with its age, and the balance sheet that sums to the ledger.

An account has a bound; an older item is logged as an error, and shown by metrics, dashboard and doctor. Everything is
read from the holds in Valkey, the ledger and the bills of providers; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from apps.billing import ledger, reconciliation
from apps.billing.reconciliation import OpenHolds
from apps.gateway.metrics import (
    BALANCE_SHEET_AGE,
    BALANCE_SHEET_DIFFERENCE,
    CLEARING_AGE,
    CLEARING_AMOUNT,
    CLEARING_ITEMS,
    CLEARING_OVERDUE,
)
from apps.gateway.models import BalanceSheet, ClearingAccount
from apps.gateway.settlement.reconcile import PATIENCE
from apps.kernel.zero_series import ComingAndGoing
from apps.provider_bills import unbilled

log = structlog.get_logger(__name__)

HELD, ANSWERED, BATCHES, UNBILLED = "held", "answered", "batches", "unbilled"
# A provider's batch ends within a day; on the fourth day forgotten holds are released.
_BATCH_BOUND: Final = timedelta(days=4, hours=1)
_FARTHEST_BATCH: Final = timedelta(days=30)
_GAUGES: Final = ComingAndGoing(CLEARING_AMOUNT, CLEARING_ITEMS, CLEARING_AGE, CLEARING_OVERDUE)


def read_accounts(now: datetime) -> list[ClearingAccount]:
    """Read all clearing accounts and store them in place of the last ones. Raises DatabaseError and RedisError."""
    found = list(_accounts(now))
    with transaction.atomic():
        ClearingAccount.objects.exclude(name__in=[one.name for one in found]).delete()
        ClearingAccount.objects.bulk_create(
            sorted(found, key=lambda one: one.name),
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=["amount", "items", "oldest_at", "bound", "read_at"],
        )
    for one in found:
        if one.is_overdue:
            log.error("clearing.overdue", account=one.name, amount=str(one.amount), age=one.age, bound=one.bound)
    return found


def draw_sheet() -> BalanceSheet:
    """Sum up all credits, and keep the sheet. Raises DatabaseError and RedisError."""
    held, answered = reconciliation.read_open_holds()
    totals = ledger.read_totals()
    sheet = BalanceSheet.objects.create(
        **totals._asdict(),
        held=held.amount,
        answered=answered.amount,
        available=totals.credits - held.amount - answered.amount,
        ledger_difference=totals.received - totals.used - totals.batches - totals.deleted - totals.credits,
        holds_difference=reconciliation.find_holds_difference(),
    )
    if not sheet.is_balanced:
        log.error(
            "clearing.unbalanced",
            ledger_difference=str(sheet.ledger_difference),
            holds_difference=str(sheet.holds_difference),
        )
    return sheet


def last_sheet() -> BalanceSheet | None:
    """Return the newest sheet; None before the first. Raises DatabaseError."""
    return BalanceSheet.objects.order_by("-id").first()


def update_metrics() -> None:
    """Set the metrics to the accounts and the sheet that were stored last; accounts that are gone are at 0."""
    try:
        accounts, sheet = list(ClearingAccount.objects.all()), last_sheet()
    except DatabaseError as error:
        log.warning("clearing.not_shown", error=type(error).__name__)
        return
    _GAUGES.show({one.name: (float(one.amount), one.items, one.age, one.is_overdue) for one in accounts})
    if sheet is not None:
        BALANCE_SHEET_AGE.set(max((timezone.now() - sheet.drawn_at).total_seconds(), 0))
        BALANCE_SHEET_DIFFERENCE.labels("ledger").set(float(sheet.ledger_difference))
        BALANCE_SHEET_DIFFERENCE.labels("holds").set(float(sheet.holds_difference))


def _accounts(now: datetime) -> Iterator[ClearingAccount]:
    held, answered = reconciliation.read_open_holds()
    longest = timedelta(seconds=settings.UPSTREAM_TOTAL_TIMEOUT + PATIENCE)
    yield _account(HELD, held, longest, now)
    yield _account(ANSWERED, answered, longest, now)
    amount, count, oldest = ledger.open_holds(_first_id(now - _FARTHEST_BATCH))
    yield _account(BATCHES, OpenHolds(amount, count, oldest), _BATCH_BOUND, now)
    for one in unbilled.find_unbilled(now):
        waiting = OpenHolds(one.amount, one.requests, one.oldest_at)
        yield _account(f"{UNBILLED} {one.provider}", waiting, one.bound, now)


def _account(name: str, holds: OpenHolds, bound: timedelta, now: datetime) -> ClearingAccount:
    return ClearingAccount(
        name=name,
        amount=holds.amount,
        items=holds.requests,
        oldest_at=holds.oldest_at,
        bound=int(bound.total_seconds()),
        read_at=now,
    )


def _first_id(moment: datetime) -> UUID:
    """Return the lowest id that something made since a moment can have."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
