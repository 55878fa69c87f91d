"""Delivery of alerts to destinations: each message until the destination has it, oldest first.

A lease gives a destination to one process at a time. A delivery is recorded after the destination accepted it, so a
crash in between sends the same message again under the same id. No transaction is open while a destination is called.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.alerts.credentials import Credentials, IncomingWebhook, decrypt_credentials
from apps.alerts.messages import Notice, pagerduty_request, slack_request, teams_request, webhook_request
from apps.alerts.models import AlertDelivery, AlertDestination
from apps.alerts.notices import notice_of, sample_of
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.log_sinks.exchange import TIMEOUT, SinkFailed, send
from apps.log_sinks.kinds import SinkRequest
from apps.organizations.journal import audit
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

# Seconds that a run keeps sending, which is also the length of its lease.
RUN = 20.0
LEASE = timedelta(seconds=RUN + 3 * TIMEOUT)
# Destinations served at a time by all processes, and of one organization: slow ones do not delay those of others.
AT_ONCE, AT_ONCE_PER_ORGANIZATION = 6, 2
# Pauses after failures double from the first to the maximum.
FIRST_PAUSE, MAX_PAUSE = timedelta(seconds=15), timedelta(hours=1)
# How long a destination may fail before it is switched off, which is also how long a message waits.
PATIENCE: Final = timedelta(days=3)
_REQUESTS: dict[str, Callable[[str, Any, Notice, datetime], SinkRequest]] = {
    AlertDestination.Kind.WEBHOOK: webhook_request,
    AlertDestination.Kind.SLACK: slack_request,
    AlertDestination.Kind.TEAMS: teams_request,
    AlertDestination.Kind.PAGERDUTY: pagerduty_request,
}


def find_due(now: datetime) -> list[UUID]:
    """Return the destinations to serve now: with waiting messages and no lease, those served longest ago first."""
    leased = AlertDestination.objects.filter(leased_until__gt=now).values_list("organization_id", flat=True)
    served = Counter(leased)
    waiting = AlertDelivery.objects.filter(destination=OuterRef("pk"), status=AlertDelivery.Status.WAITING)
    due = _servable(now).filter(Exists(waiting)).order_by(F("leased_until").asc(nulls_first=True), "id")
    chosen: list[UUID] = []
    for identifier, organization_id in due.values_list("id", "organization_id").iterator():
        if served.total() >= AT_ONCE:
            break
        if served[organization_id] < AT_ONCE_PER_ORGANIZATION:
            served[organization_id] += 1
            chosen.append(identifier)
    return chosen


def deliver(destination_id: UUID) -> int:
    """Send waiting messages to a destination for the length of a run; return how many it accepted.

    Does nothing if another process has the lease. A failure is recorded, not raised. Raises DatabaseError.
    """
    now = timezone.now()
    if not _servable(now).filter(pk=destination_id).update(leased_until=now + LEASE):
        return 0
    sent, ends = 0, time.monotonic() + RUN
    try:
        while time.monotonic() < ends:
            # Read again for each message: destination or organization may have been switched off or deleted.
            destination = _wanted().filter(pk=destination_id).select_related("organization").first()
            delivery = _next(destination) if destination is not None else None
            if destination is None or delivery is None:
                break
            _send(destination, notice_of(delivery))
            _finish(destination, delivery, timezone.now())
            sent += 1
    except SinkFailed as failure:
        _note_failure(destination_id, failure, timezone.now())
    finally:
        AlertDestination.objects.filter(pk=destination_id).update(leased_until=timezone.now())
    return sent


def send_test(destination: AlertDestination) -> None:
    """Send a made-up alert to a destination. Raises SinkFailed. Nothing is recorded."""
    notice = sample_of(destination)
    _send(destination, notice)
    if destination.kind == AlertDestination.Kind.PAGERDUTY:
        # It would stay open there otherwise.
        _send(destination, notice._replace(is_resolved=True, resolved_at=timezone.now()))


def purge(now: datetime) -> int:
    """Drop messages that waited too long, and those of deleted destinations; return how many."""
    waiting = AlertDelivery.objects.filter(status=AlertDelivery.Status.WAITING)
    gone = Q(created_at__lt=now - PATIENCE) | Q(destination__status=AlertDestination.Status.DELETED)
    return AlertDelivery.objects.filter(pk__in=waiting.filter(gone).values("pk")).update(
        status=AlertDelivery.Status.DROPPED
    )


def _wanted() -> QuerySet[AlertDestination]:
    """Return the active destinations of organizations that are not deleted."""
    standing = Organization.objects.exclude(status=Organization.Status.DELETED)
    return AlertDestination.objects.filter(status=AlertDestination.Status.ACTIVE, organization__in=standing)


def _servable(now: datetime) -> QuerySet[AlertDestination]:
    """Return the destinations that are due and have no lease."""
    return _wanted().filter(Q(leased_until=None) | Q(leased_until__lte=now), next_attempt_at__lte=now)


def _next(destination: AlertDestination) -> AlertDelivery | None:
    waiting = AlertDelivery.objects.filter(destination=destination, status=AlertDelivery.Status.WAITING)
    return waiting.select_related("alert__organization").order_by("id").first()


def _send(destination: AlertDestination, notice: Notice) -> None:
    credentials = _credentials_of(destination)
    url = credentials.url if isinstance(credentials, IncomingWebhook) else destination.url
    request = _REQUESTS[destination.kind](url, credentials, notice, datetime.now(UTC))
    # Do not hold a pooled connection while the destination is slow.
    database.release_connection()
    send(request, credentials.secrets, destination.organization_id)


def _credentials_of(destination: AlertDestination) -> Credentials:
    try:
        return decrypt_credentials(bytes(destination.encrypted_credentials))
    except UnreadableSecretError as error:
        raise SinkFailed("No key in ENCRYPTION_KEYS decrypts its credentials: enter them again") from error


@transaction.atomic
def _finish(destination: AlertDestination, delivery: AlertDelivery, now: datetime) -> None:
    """Record that a message was accepted."""
    waiting = AlertDelivery.objects.filter(pk=delivery.pk, status=AlertDelivery.Status.WAITING)
    waiting.update(status=AlertDelivery.Status.SENT, sent_at=now)
    AlertDestination.objects.filter(pk=destination.pk).update(last_delivered_at=now, failures=0, failing_since=None)


@transaction.atomic
def _note_failure(destination_id: UUID, failure: SinkFailed, now: datetime) -> None:
    row = AlertDestination.objects.select_for_update(no_key=True).get(pk=destination_id)
    row.failures += 1
    row.failing_since = row.failing_since or now
    row.last_error, row.last_error_at = failure.message[:500], now
    pause = min(FIRST_PAUSE * 2 ** min(row.failures - 1, 20), MAX_PAUSE)
    row.next_attempt_at = now + max(pause, timedelta(seconds=failure.pause))
    log.warning("alerts.not_delivered", destination=str(destination_id), kind=row.kind, failures=row.failures)
    names = ["failures", "failing_since", "last_error", "last_error_at", "next_attempt_at"]
    if row.status == AlertDestination.Status.ACTIVE and now - row.failing_since >= PATIENCE:
        row.status = AlertDestination.Status.FAILED
        names.append("status")
        details = {"name": row.name, "failingSince": row.failing_since, "lastError": row.last_error}
        with audit.acting():
            audit.record(
                "alert_destination.disable", organization_id=row.organization_id, resource=row, details=details
            )
    row.save(update_fields=names)
