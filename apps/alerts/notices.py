"""Notices of waiting deliveries: the message about an alert, with the address of its page in the console."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings

from apps.alerts.kind_names import PARAMETERS, KindName
from apps.alerts.messages import Notice
from apps.alerts.models import AlertDelivery, AlertDestination
from apps.kernel.ids import new_id, time_of


def notice_of(delivery: AlertDelivery) -> Notice:
    """Return the notice of a delivery, which was read with its alert and organization."""
    alert = delivery.alert
    return Notice(
        id=delivery.id,
        alert_id=alert.id,
        organization_id=alert.organization_id,
        organization=alert.organization.name,
        kind=alert.kind,
        subject=alert.subject,
        severity=PARAMETERS[KindName(alert.kind)].severity,
        is_resolved=delivery.phase == AlertDelivery.Phase.RESOLVED,
        title=alert.title,
        text=alert.text,
        url=console_url(alert.organization_id, alert.page),
        figures=alert.figures,
        fired_at=alert.fired_at,
        resolved_at=alert.resolved_at,
    )


def sample_of(destination: AlertDestination) -> Notice:
    """Return a made-up notice that is recognizable as one. Its severity is the lowest."""
    identifier = new_id()
    now = time_of(identifier)
    return Notice(
        id=identifier,
        alert_id=identifier,
        organization_id=destination.organization_id,
        organization=destination.organization.name,
        kind="test",
        subject="",
        severity="info",
        is_resolved=False,
        title=f"Test of the alert destination {destination.name}",
        text="A member of the organization sent this test. Nothing is wrong.",
        url=console_url(destination.organization_id, "alerts"),
        figures={},
        fired_at=now,
        resolved_at=None,
    )


def console_url(organization_id: UUID, page: str) -> str:
    """Return the address of an organization's page in the console."""
    return f"{settings.PUBLIC_URL}/app/o/{organization_id}/{page}"
