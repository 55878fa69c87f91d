"""Scheduled tasks on limits."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.limits import retention

log = structlog.get_logger(__name__)


@shared_task(name="limits.purge", time_limit=3_000)
def purge() -> None:
    """Purge old charges and counters. An interrupted run is completed by the next."""
    purged = retention.purge(timezone.now())
    log.info("limits.purged", charges=purged.charges, counters=purged.counters)
