"""Access control of alerts: admins of an organization see its alerts, and manage its rules and destinations."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from apps.alerts.firing import resolve_rule
from apps.alerts.models import Alert, AlertDestination, AlertReader, AlertRule
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.access import access_organization
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.journal import audit
from apps.organizations.models import Membership, Organization, Role, User

# Unread alerts that are counted.
MAX_COUNTED = 100

DESTINATIONS = IntegrationTable(
    model=AlertDestination,
    thing="alert_destination",
    noun="alert destination",
    order=("name",),
    masks=("masked_credentials",),
    noted_new=("name", "kind", "url", "masked_credentials"),
)


class RuleTable(IntegrationTable[AlertRule]):
    """The rules: as integrations, but without credentials, and with alerts that end with them."""

    def name_taken(self) -> InvalidFields:
        """Return the error for a rule that exists already."""
        return InvalidFields([Issue(self.unique, "Another alert rule has this kind and these parameters")])

    def delete(self, row: AlertRule) -> None:
        """Delete a rule and resolve its open alerts. Raises NotFound if it already is deleted."""
        with transaction.atomic():
            current = self.lock(row)
            details = {"kind": current.kind, "parameters": current.parameters}
            audit.record(
                "alert_rule.delete", organization_id=current.organization_id, resource=current, details=details
            )
            resolve_rule(current, timezone.now())
            current.status = AlertRule.Status.DELETED
            current.save(update_fields=["status", "updated_at"])


RULES = RuleTable(
    model=AlertRule,
    thing="alert_rule",
    noun="alert rule",
    order=("created_at", "id"),
    masks=(),
    unique="kind",
    noted_new=("kind", "parameters", "destination_ids"),
)


def access_alerts(user: User, organization_id: str) -> tuple[Organization, AlertReader]:
    """Return an organization that the user administers, and the user's choices there. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.ADMIN)
    return organization, reader_of(user, organization)


def reader_of(user: User, organization: Organization) -> AlertReader:
    """Return a member's choices; those of a new member, not stored, if there are none."""
    membership = Membership.objects.select_related("alert_reader").get(user=user, organization=organization)
    reader: AlertReader | None = getattr(membership, "alert_reader", None)
    # Earlier alerts are not news to a new member.
    return reader or AlertReader(membership=membership, by_email=True, read_until=membership.created_at)


def unread(organization: Organization, reader: AlertReader) -> int:
    """Return how many alerts a member has not read, at most MAX_COUNTED."""
    alerts = Alert.objects.filter(organization=organization)
    if reader.read_until is not None:
        alerts = alerts.filter(fired_at__gt=reader.read_until)
    return alerts.order_by("-id")[:MAX_COUNTED].count()
