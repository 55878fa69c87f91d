"""Scheduled tasks on provider keys."""

from __future__ import annotations

import structlog
from celery import shared_task

from apps.keys.provider_keys import refresh_due_models

log = structlog.get_logger(__name__)


@shared_task(name="keys.refresh_models", time_limit=400)
def refresh_models() -> None:
    """Refresh the models of organizations' own servers that are due."""
    log.info("keys.models_refreshed", servers=refresh_due_models())
