"""Scheduled work on the log."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.logs import partitions, retention

log = structlog.get_logger(__name__)


@shared_task(name="logs.make_partitions", time_limit=60)
def make_partitions() -> None:
    """Make the partitions of the days to come."""
    made = partitions.ensure(partitions.upcoming(timezone.now()))
    log.info("partitions.made", days=[str(day) for day in made])


@shared_task(name="logs.expire", time_limit=1800)
def expire() -> None:
    """Remove what is past its retention. A run that is cut short is carried on by the next."""
    expired = retention.expire(timezone.now())
    log.info("logs.expired", days=[str(day) for day in expired.days], rows=expired.rows)
