"""Scheduled tasks on alerts."""

from __future__ import annotations

from uuid import UUID

import structlog
from celery import shared_task
from django.utils import timezone

from apps.alerts import delivery, emails, evaluation, firing

log = structlog.get_logger(__name__)


@shared_task(name="alerts.evaluate", time_limit=120)
def evaluate() -> None:
    """Evaluate the rules of organizations whose turn it is."""
    log.info("alerts.evaluated", organizations=evaluation.evaluate_due(timezone.now()))


@shared_task(name="alerts.deliver_due", time_limit=60)
def deliver_due() -> None:
    """Begin a run for each destination that is due. A run that is cut short is carried on later."""
    for destination_id in delivery.find_due(timezone.now()):
        deliver.apply_async((str(destination_id),), expires=30)


@shared_task(name="alerts.deliver", time_limit=120)
def deliver(destination_id: str) -> None:
    """Send one destination the messages that wait for it."""
    log.info("alerts.delivered", destination=destination_id, messages=delivery.deliver(UUID(destination_id)))


@shared_task(name="alerts.send_emails", time_limit=600)
def send_emails() -> None:
    """Send waiting e-mails."""
    log.info("alerts.emailed", emails=emails.send_due(timezone.now()))


@shared_task(name="alerts.purge", time_limit=600)
def purge() -> None:
    """Drop messages that waited too long, and delete old alerts."""
    now = timezone.now()
    log.info("alerts.purged", messages=delivery.purge(now), alerts=firing.expire(now))
