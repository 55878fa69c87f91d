"""Scheduled tasks on provider keys."""

from __future__ import annotations

from uuid import UUID

import structlog
from celery import shared_task

from apps.keys import provider_keys

log = structlog.get_logger(__name__)


@shared_task(name="keys.refresh_models", time_limit=60)
def refresh_models() -> None:
    """Begin a refresh of the models of each own server that is due."""
    due = provider_keys.find_due()
    for key_id in due:
        refresh_models_of.apply_async((str(key_id),), expires=3600)
    log.info("keys.models_due", keys=len(due))


@shared_task(name="keys.refresh_models_of", time_limit=120)
def refresh_models_of(key_id: str) -> None:
    """Refresh the models of one own server."""
    provider_keys.refresh_when_due(UUID(key_id))
