"""Scheduled work on the ledger."""

from __future__ import annotations

import structlog
from celery import shared_task

from apps.billing.audit import differences
from apps.kernel.money import plain

log = structlog.get_logger(__name__)


@shared_task(name="billing.check_ledger", time_limit=1800)
def check_ledger() -> None:
    """Tell of every balance that the ledger contradicts."""
    found = differences()
    for one in found:
        log.error(
            "ledger.differs", scope=one.scope, id=str(one.id), balance=plain(one.balance), entries=plain(one.entries)
        )
    log.info("ledger.checked", differences=len(found))
