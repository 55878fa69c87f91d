"""Scheduled tasks on the log."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.logs import archive, partitions, performance, refusals, retention, rollup, text_search, traffic

log = structlog.get_logger(__name__)

# Seconds after which a run begins no further index: the largest day then has as long again.
INDEXING_SECONDS = 1_700


@shared_task(name="logs.make_partitions", time_limit=60)
def make_partitions() -> None:
    """Create the partitions of the next days."""
    made = partitions.ensure(partitions.upcoming(timezone.now()))
    log.info("partitions.made", days=[str(day) for day in made])


@shared_task(name="logs.expire", time_limit=1800)
def expire() -> None:
    """Delete expired rows. An interrupted run is completed by the next."""
    now = timezone.now()
    expired = retention.expire(now)
    log.info("logs.expired", days=[str(day) for day in expired.days], rows=expired.rows, activity=expired.activity)
    traffic.expire(now)
    performance.expire(now)
    archive.expire(now)


@shared_task(name="logs.blank", time_limit=3000)
def blank() -> None:
    """Clear columns that exceed the organizations' retention levels. As above."""
    log.info("logs.blanked", rows=retention.blank())
    archive.blank()


@shared_task(name="logs.move", time_limit=3_500)
def move() -> None:
    """Move closed days to the log archive, if there is one. As above."""
    log.info("logs.moved", days=[str(day) for day in archive.archive_closed_days(timezone.now())])


@shared_task(name="logs.index_text", time_limit=3_500)
def index_text() -> None:
    """Create the indexes for text search of days that have ended, for half an hour; the next run goes on."""
    log.info(
        "logs.text_indexed", days=[str(day) for day in text_search.index_closed_days(timezone.now(), INDEXING_SECONDS)]
    )


@shared_task(name="logs.roll_up", time_limit=600)
def roll_up() -> None:
    """Fold deltas into daily totals and slots of traffic and performance. As above."""
    log.info("activity.rolled_up", notes=rollup.roll_up(), traffic=traffic.fold(), performance=performance.fold())


@shared_task(name="logs.roll_up_refusals", time_limit=60)
def roll_up_refusals() -> None:
    """Move the counts of refused requests to their table."""
    log.info("refusals.rolled_up", rows=refusals.roll_up(timezone.now()))
