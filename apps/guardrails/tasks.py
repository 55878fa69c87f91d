"""Scheduled tasks on violations."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.guardrails import stored_violations

log = structlog.get_logger(__name__)


@shared_task(name="guardrails.expire", time_limit=1800)
def expire() -> None:
    """Remove violations that are past their retention. A run that is cut short is carried on by the next."""
    log.info("violations.expired", rows=stored_violations.expire(timezone.now()))
