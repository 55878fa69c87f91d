"""Hooks of organizations: their alerts in the admin, the erasure of alerts, and the rotation of their credentials."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.alerts.access import DESTINATIONS
from apps.alerts.messages import Credentials
from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertReader, AlertRule, AlertWatch
from apps.destinations.credentials import decrypt_credentials, encrypt_credentials
from apps.kernel.postgres.rows import delete_in_pieces
from apps.kernel.secrets.encryption import Rotated
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _alerts(organization: Organization) -> Any:
    return Alert.objects.filter(organization=organization).order_by("-id")


def _destinations(organization: Organization) -> Any:
    return AlertDestination.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "alerts",
        "Alerts",
        "alerts.view_alert",
        lambda row: list_of("alerts_alert", organization__id__exact=row.pk),
        ("Alert", "Kind", "Fired", "Resolved"),
        _alerts,
        lambda row: (link_to(row), row.get_kind_display(), moment(row.fired_at), moment(row.resolved_at)),
    ),
    Tab(
        "alert-destinations",
        "Alert destinations",
        "alerts.view_alertdestination",
        lambda row: list_of("alerts_alertdestination", organization__id__exact=row.pk),
        ("Name", "Kind", "Address", "Status", "Created"),
        _destinations,
        lambda row: (link_to(row), row.get_kind_display(), row.url, row.status, moment(row.created_at)),
    ),
]


def erase(organization_id: UUID) -> None:
    """Delete all alerts, deliveries, rules, destinations with their credentials, and members' choices."""
    # First: without it, an evaluation that is under way writes nothing more.
    AlertWatch.objects.filter(pk=organization_id).delete()
    delete_in_pieces(AlertDelivery.objects.filter(alert__organization=organization_id))
    delete_in_pieces(Alert.objects.filter(organization=organization_id))
    AlertDestination.objects.filter(organization=organization_id).delete()
    AlertRule.objects.filter(organization=organization_id).delete()
    AlertReader.objects.filter(membership__organization=organization_id).delete()


# Name of the secrets for the operator.
WORDS = "credentials of alert destinations"


def rotate() -> Rotated:
    """Encrypt every destination's credentials with the newest encryption key, so that older ones can be removed."""
    return DESTINATIONS.rotate(_reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted, Credentials))
