"""Scheduled tasks on files and batches."""

from __future__ import annotations

import sys
from typing import Any

import gevent
import structlog
from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import DatabaseError
from django.utils import timezone
from gevent.monkey import is_module_patched

from apps.batches import retention
from apps.batches.models import OPEN_STATUSES, Batch
from apps.batches.native import line_holds
from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

# Maximum seconds of one run; the next follows soon.
_LASTS = 60.0
# Answers lines. With it comes all of the gateway, so it is loaded for the first batch.
_WORK = "apps.batches.work"
_stopping = False


@shared_task(name="batches.work", time_limit=900)
def work_on_batches() -> None:
    """Work on batches. Lines in progress at its end go on."""
    try:
        is_any_open = database.read(Batch.objects.filter(status__in=OPEN_STATUSES).exists)
    except (DatabaseError, Overloaded) as error:
        log.warning("batches.not_worked", error=type(error).__name__)
        return
    if is_any_open and not _stopping:
        from apps.batches.work import work

        work(_LASTS)


@shared_task(name="batches.purge", time_limit=1_800)
def purge() -> None:
    """Remove expired files and batches. An interrupted run is completed by the next."""
    if removed := retention.purge(timezone.now()):
        log.info("batches.purged", rows=removed)
    if forgotten := line_holds.give_back_forgotten(timezone.now()):
        log.warning("batches.holds_forgotten", holds=forgotten)


@worker_shutting_down.connect
def _stop(**_: Any) -> None:
    """Let others go on with this worker's lines at once."""
    global _stopping
    _stopping = True
    if is_module_patched("socket") and _WORK in sys.modules:
        # Signals come to the event loop, which must not wait.
        gevent.spawn(sys.modules[_WORK].stop)
