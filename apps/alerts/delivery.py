"""Delivery of alerts to destinations: each message until the destination has it, oldest first.

A message that is sent again has the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from apps.alerts.access import DESTINATIONS
from apps.alerts.messages import (
    Credentials,
    IncomingWebhook,
    Notice,
    notice_of,
    pagerduty_request,
    sample_of,
    slack_request,
    teams_request,
    webhook_request,
)
from apps.alerts.metrics import EMAIL, count_messages
from apps.alerts.models import AlertDelivery, AlertDestination
from apps.destinations.credentials import credentials_to_send
from apps.destinations.delivery import PATIENCE, run, servable
from apps.destinations.exchange import DeliveryFailed, DeliveryRequest, send
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

# Destinations served at a time by all processes, and of one organization: slow ones do not delay those of others.
AT_ONCE, AT_ONCE_PER_ORGANIZATION = 6, 2
_REQUESTS: dict[str, Callable[[str, Any, Notice, datetime], DeliveryRequest]] = {
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
    due = servable(DESTINATIONS, now).filter(Exists(waiting)).order_by(F("leased_until").asc(nulls_first=True), "id")
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
    return run(DESTINATIONS, destination_id, _send_message)


def _send_message(destination: AlertDestination) -> int | None:
    """Send the oldest message that waits; return 1, or None if none waits. Raises DeliveryFailed."""
    waiting = AlertDelivery.objects.filter(destination=destination, status=AlertDelivery.Status.WAITING)
    delivery = waiting.select_related("alert__organization").order_by("id").first()
    if delivery is None:
        return None
    try:
        _send(destination, notice_of(delivery))
    except DeliveryFailed:
        count_messages(destination.kind, "failed")
        raise
    count_messages(destination.kind, "sent")
    _finish(destination, delivery, timezone.now())
    return 1


def send_test(destination: AlertDestination) -> None:
    """Send a made-up alert to a destination. Raises DeliveryFailed. Nothing is recorded."""
    notice = sample_of(destination)
    _send(destination, notice)
    if destination.kind == AlertDestination.Kind.PAGERDUTY:
        # It would stay open there otherwise.
        _send(destination, notice._replace(is_resolved=True, resolved_at=timezone.now()))


def purge(now: datetime) -> int:
    """Drop messages that waited too long, and those of deleted destinations; return how many."""
    waiting = AlertDelivery.objects.filter(status=AlertDelivery.Status.WAITING)
    gone = Q(created_at__lt=now - PATIENCE) | Q(destination__status=AlertDestination.Status.DELETED)
    kinds = Counter(waiting.filter(gone).values_list("destination__kind", flat=True))
    dropped = AlertDelivery.objects.filter(pk__in=waiting.filter(gone).values("pk")).update(
        status=AlertDelivery.Status.DROPPED
    )
    for kind, number in kinds.items():
        count_messages(kind or EMAIL, "dropped", number)
    return dropped


def _send(destination: AlertDestination, notice: Notice) -> None:
    credentials = credentials_to_send(destination.encrypted_credentials, Credentials)
    url = credentials.url if isinstance(credentials, IncomingWebhook) else destination.url
    request = _REQUESTS[destination.kind](url, credentials, notice, datetime.now(UTC))
    # Do not hold a pooled connection while the destination is slow.
    database.release_connection()
    send(request, credentials.secrets, destination.organization_id)


@transaction.atomic
def _finish(destination: AlertDestination, delivery: AlertDelivery, now: datetime) -> None:
    """Record that a message was accepted."""
    waiting = AlertDelivery.objects.filter(pk=delivery.pk, status=AlertDelivery.Status.WAITING)
    waiting.update(status=AlertDelivery.Status.SENT, sent_at=now)
    AlertDestination.objects.filter(pk=destination.pk).update(last_delivered_at=now, failures=0, failing_since=None)
