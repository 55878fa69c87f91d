"""Runs of delivery: what waits is sent to a destination until the destination has it; failures pause it, then end it.

A lease gives a destination to one process at a time. A delivery is recorded after the destination accepted it, so a
crash in between sends it again. No transaction is open while a destination is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar, cast
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.destinations.exchange import TIMEOUT, DeliveryFailed
from apps.destinations.models import Destination
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.journal import audit
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# Seconds that a run keeps sending, which is also the length of its lease.
RUN = 20.0
LEASE = timedelta(seconds=RUN + 3 * TIMEOUT)
# Pauses after failures double from the first to the maximum.
FIRST_PAUSE, MAX_PAUSE = timedelta(seconds=15), timedelta(hours=1)
# How long a destination may fail before it is switched off.
PATIENCE: Final = timedelta(days=3)

To = TypeVar("To", bound=Destination)


def servable(table: IntegrationTable[To], now: datetime) -> QuerySet[To]:
    """Return the destinations that are due and have no lease."""
    return _active(table).filter(Q(leased_until=None) | Q(leased_until__lte=now), next_attempt_at__lte=now)


def run(table: IntegrationTable[To], destination_id: UUID, send_next: Callable[[To], int | None]) -> int:
    """Send to a destination for the length of a run; return how much it accepted, as `send_next` counts.

    `send_next` sends what has waited longest and records that; it returns None if nothing waits, and raises
    DeliveryFailed. Does nothing if another process has the lease. A failure is recorded, not raised. Raises
    DatabaseError.
    """
    now = timezone.now()
    if not servable(table, now).filter(pk=destination_id).update(leased_until=now + LEASE):
        return 0
    sent, ends = 0, time.monotonic() + RUN
    try:
        while time.monotonic() < ends:
            # Read again each time: destination or organization may have been changed, switched off or deleted.
            destination = _active(table).filter(pk=destination_id).select_related("organization").first()
            accepted = send_next(destination) if destination is not None else None
            if accepted is None:
                break
            sent += accepted
    except DeliveryFailed as failure:
        _note_failure(table, destination_id, failure, timezone.now())
    finally:
        table.model._default_manager.filter(pk=destination_id).update(leased_until=timezone.now())
    return sent


def _active(table: IntegrationTable[To]) -> QuerySet[To]:
    """Return the active destinations of organizations that are not deleted."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    return table.model._default_manager.filter(status=Destination.Status.ACTIVE, organization__in=standing)


@transaction.atomic
def _note_failure(table: IntegrationTable[To], destination_id: UUID, failure: DeliveryFailed, now: datetime) -> None:
    row = cast(Destination, table.model._default_manager.select_for_update(no_key=True).get(pk=destination_id))
    row.failures += 1
    row.failing_since = row.failing_since or now
    row.last_error, row.last_error_at = failure.message[:500], now
    pause = min(FIRST_PAUSE * 2 ** min(row.failures - 1, 20), MAX_PAUSE)
    row.next_attempt_at = now + max(pause, timedelta(seconds=failure.pause))
    log.warning(
        "destinations.not_delivered",
        thing=table.thing,
        destination=str(destination_id),
        kind=row.kind,
        failures=row.failures,
    )
    names = ["failures", "failing_since", "last_error", "last_error_at", "next_attempt_at"]
    if row.status == Destination.Status.ACTIVE and now - row.failing_since >= PATIENCE:
        names += row.switch_off()
        details = {"name": row.name, "failingSince": row.failing_since, "lastError": row.last_error}
        with audit.acting():
            audit.record(f"{table.thing}.disable", organization_id=row.organization_id, resource=row, details=details)
    row.save(update_fields=names)
