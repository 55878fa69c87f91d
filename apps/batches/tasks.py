"""Scheduled tasks on files and batches."""

from __future__ import annotations

from typing import Any

import gevent
import structlog
from celery import shared_task
from celery.signals import worker_shutting_down
from django.utils import timezone
from gevent.monkey import is_module_patched

from apps.batches import retention
from apps.batches.native import parked_lines
from apps.batches.work import stop, work

log = structlog.get_logger(__name__)

# Maximum seconds of one run; the next follows soon.
_LASTS = 60.0


@shared_task(name="batches.work", time_limit=900)
def work_on_batches() -> None:
    """Work on batches. Lines in progress at its end go on."""
    work(_LASTS)


@shared_task(name="batches.purge", time_limit=1_800)
def purge() -> None:
    """Remove expired files and batches. An interrupted run is completed by the next."""
    if removed := retention.purge(timezone.now()):
        log.info("batches.purged", rows=removed)
    if forgotten := parked_lines.give_back_forgotten(timezone.now()):
        log.warning("batches.holds_forgotten", holds=forgotten)


@worker_shutting_down.connect
def _stop(**_: Any) -> None:
    """Let others go on with this worker's lines at once."""
    if is_module_patched("socket"):
        # Signals come to the event loop, which must not wait.
        gevent.spawn(stop)
