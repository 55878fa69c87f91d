"""Erasure of the alerts of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertReader, AlertRule, AlertWatch
from apps.kernel.postgres.deletion import delete_in_pieces


def erase(organization_id: UUID) -> None:
    """Delete all alerts, deliveries, rules, destinations with their credentials, and members' choices."""
    # First: without it, an evaluation that is under way writes nothing more.
    AlertWatch.objects.filter(pk=organization_id).delete()
    delete_in_pieces(AlertDelivery.objects.filter(alert__organization=organization_id))
    delete_in_pieces(Alert.objects.filter(organization=organization_id))
    AlertDestination.objects.filter(organization=organization_id).delete()
    AlertRule.objects.filter(organization=organization_id).delete()
    AlertReader.objects.filter(membership__organization=organization_id).delete()
