"""Celery tasks of settlement: the nightly reconciliation."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from apps.gateway.settlement.reconcile import reconcile as reconcile_all


@shared_task(name="gateway.reconcile", time_limit=3000)
def reconcile() -> None:
    """Compare requests, log, ledger and balances, and keep what differs. Two at once are two runs."""
    reconcile_all(timezone.now())
