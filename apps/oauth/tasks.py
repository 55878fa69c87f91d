"""Scheduled tasks on codes, tokens and clients."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from apps.oauth import tokens

log = structlog.get_logger(__name__)


@shared_task(name="oauth.purge", time_limit=900)
def purge() -> None:
    """Delete expired rows. An interrupted run is completed by the next."""
    if removed := tokens.purge(timezone.now()):
        log.info("oauth.purged", rows=removed)
