"""Scheduled tasks on log sinks."""

from __future__ import annotations

from uuid import UUID

import structlog
from celery import shared_task
from django.utils import timezone

from apps.log_sinks import delivery, metrics, owner_emails, queue

log = structlog.get_logger(__name__)


@shared_task(name="log_sinks.deliver_due", time_limit=60)
def deliver_due() -> None:
    """Begin a run for each sink that is due, and note how much waits. A run that is cut short is carried on later."""
    now = timezone.now()
    for sink_id in delivery.find_due(now):
        deliver.apply_async((str(sink_id),), expires=30)
    metrics.take_down(now)


@shared_task(name="log_sinks.deliver", time_limit=120)
def deliver(sink_id: str) -> None:
    """Send one sink what waits for it."""
    sent = delivery.deliver(UUID(sink_id))
    log.info("log_sinks.delivered", sink=sink_id, rows=sent)


@shared_task(name="log_sinks.tell_owners", time_limit=600)
def tell_owners() -> None:
    """Send the e-mail about sinks that were switched off."""
    log.info("log_sinks.owners_told", sinks=owner_emails.tell_owners())


@shared_task(name="log_sinks.purge", time_limit=600)
def purge() -> None:
    """Remove what waits for sinks that are gone, and what has waited for too long."""
    log.info("log_sinks.purged", rows=queue.purge(timezone.now()))
