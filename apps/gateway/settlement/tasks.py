"""Celery tasks of settlement: the nightly reconciliation, clearing accounts, and balance sheets."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from apps.gateway.settlement import clearing
from apps.gateway.settlement.reconcile import reconcile as reconcile_all


@shared_task(name="gateway.reconcile", time_limit=3000)
def reconcile() -> None:
    """Compare requests, log, ledger and balances, and keep what differs. Two at once are two runs."""
    reconcile_all(timezone.now())


@shared_task(name="gateway.read_clearing", time_limit=300)
def read_clearing() -> None:
    """Read the clearing accounts. Two at once store the same."""
    clearing.read_accounts(timezone.now())


@shared_task(name="gateway.draw_balance_sheet", time_limit=3000)
def draw_balance_sheet() -> None:
    """Sum up all credits. Two at once are two sheets."""
    clearing.draw_sheet()
