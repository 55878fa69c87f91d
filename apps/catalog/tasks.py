"""Scheduled tasks on the catalog."""

from __future__ import annotations

import structlog
from celery import shared_task

from apps.catalog import metrics, price_history
from apps.catalog.actions import read_lists

log = structlog.get_logger(__name__)


@shared_task(name="catalog.propose", time_limit=900)
def propose() -> None:
    """Read the configured price lists, store and apply their proposals, and count. Without lists nothing is fetched."""
    waiting, applied = read_lists()
    log.info("catalog.proposed", waiting=waiting, applied=applied)
    metrics.note_state()


@shared_task(name="catalog.apply_scheduled_prices", time_limit=600)
def apply_scheduled_prices() -> None:
    """Apply operators' price changes whose time has come. An interrupted run is completed by the next."""
    if applied := price_history.apply_due():
        log.info("catalog.scheduled_prices_applied", count=applied)
