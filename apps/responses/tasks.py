"""Scheduled tasks on stored responses."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.responses import response_rows, retention

log = structlog.get_logger(__name__)


@shared_task(name="responses.purge", time_limit=1_800)
def purge() -> None:
    """Remove expired rows. An interrupted run is completed by the next."""
    if removed := retention.purge(timezone.now()):
        log.info("responses.purged", rows=removed)


@shared_task(name="responses.bring_in", time_limit=300)
def bring_in() -> None:
    """Store responses set aside while PostgreSQL was down. As above."""
    if brought := response_rows.bring_in():
        log.info("responses.brought_in", count=brought)
