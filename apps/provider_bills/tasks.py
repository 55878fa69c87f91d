"""Scheduled task of provider bills. It may run twice, and concurrently."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.provider_bills.actions import read_due_bills

log = structlog.get_logger(__name__)


@shared_task(name="provider_bills.read", time_limit=1800)
def read() -> None:
    """Read the bills whose keys are set, and compare their days with the log. Without keys nothing is called."""
    made, compared = read_due_bills(timezone.now())
    log.info("bills.read", readings=len(made), failed=sum(bool(one.problem) for one in made), days=len(compared))
