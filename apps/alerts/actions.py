"""Actions on alerts: add and change rules and destinations, mark as read, and choose e-mails; and sending a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.alerts import delivery
from apps.alerts.access import DESTINATIONS, RULES
from apps.alerts.evaluation import watch
from apps.alerts.firing import resolve_rule
from apps.alerts.messages import Credentials, IncomingWebhook
from apps.alerts.models import AlertDestination, AlertReader, AlertRule
from apps.destinations import actions as destinations
from apps.kernel.ids import find_id
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.journal import audit
from apps.organizations.models import Organization

# Rules of one organization, evaluated every minute; destinations, each of which gets every alert.
MAX_RULES, MAX_DESTINATIONS = 30, 10


@dataclass(frozen=True, slots=True)
class NewDestination:
    """A new destination; `url` is its full address."""

    name: str
    kind: str
    url: str
    credentials: Credentials = field(repr=False)


@transaction.atomic
def create_rule(
    *,
    organization: Organization,
    kind: str,
    parameters: Mapping[str, Any],
    destination_ids: Sequence[str] | None = None,
) -> AlertRule:
    """Store a rule. Raises InvalidRequest at the limit of rules, InvalidFields for a rule that exists already; NotFound
    if the organization was deleted meanwhile."""
    watch(organization.id, timezone.now())
    chosen = _known_destinations(organization, destination_ids)
    columns = {"kind": kind, "parameters": dict(parameters), "destination_ids": chosen}
    return RULES.create(organization, columns, max_rows=MAX_RULES)


@transaction.atomic
def change_rule(*, rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """Set `status` or `destination_ids`; the open alerts of a rule that is switched off are resolved. Raises
    InvalidFields, NotFound if it was deleted meanwhile."""
    row = RULES.lock(rule)
    if "destination_ids" in changes:
        changes = {**changes, "destination_ids": _known_destinations(row.organization, changes["destination_ids"])}
    RULES.update(row, changes, audit.changes_of(row, changes))
    if row.status != AlertRule.Status.ACTIVE:
        resolve_rule(row, timezone.now())
    return row


def _known_destinations(organization: Organization, ids: Sequence[str] | None) -> list[str] | None:
    """Return ids of an organization's destinations as they are stored. Raises InvalidFields for others."""
    if ids is None:
        return None
    known = DESTINATIONS.living.filter(organization=organization, pk__in=[find_id(one) for one in ids])
    found = {str(one) for one in known.values_list("pk", flat=True)}
    chosen = [str(find_id(one)) for one in ids]
    for index, one in enumerate(chosen):
        if one not in found:
            raise InvalidFields([Issue(f"destinationIds[{index}]", "Must be the id of an alert destination")])
    return list(dict.fromkeys(chosen))


def check_destination(*, organization: Organization, given: NewDestination) -> None:
    """Check that a new destination's address may be called. Raises InvalidFields, RateLimited. Takes as long as the
    lookup."""
    destinations.check_address(organization.id, given.url)


def create_destination(*, organization: Organization, given: NewDestination) -> AlertDestination:
    """Store a destination with a checked address and encrypted credentials. It gets the alerts from now on.

    Raises InvalidRequest at the limit of destinations, InvalidFields for a name in use; NotFound if the organization
    was deleted meanwhile.
    """
    is_secret = isinstance(given.credentials, IncomingWebhook)
    columns = {"name": given.name, "kind": given.kind, "url": given.credentials.masked if is_secret else given.url}
    return destinations.create(DESTINATIONS, organization, columns, given.credentials, MAX_DESTINATIONS)


def change_destination(*, destination: AlertDestination, changes: Mapping[str, Any]) -> AlertDestination:
    """Set `status`, `name` or `credentials`; waiting messages are then tried at once.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    return destinations.change(DESTINATIONS, destination, changes)


def test_destination(*, destination: AlertDestination) -> None:
    """Send a made-up alert to a destination; nothing changes. Takes as long as the destination does.

    Raises InvalidRequest with the error, NotFound for a deleted destination.
    """
    destinations.send_test(DESTINATIONS, destination, delivery.send_test)


def mark_read(*, reader: AlertReader, until: datetime) -> AlertReader:
    """Mark the alerts up to a time as read for one member; later ones stay unread."""
    return _set(reader, read_until=max(until, reader.read_until or until))


@transaction.atomic
def choose_emails(*, reader: AlertReader, **choices: Any) -> AlertReader:
    """Switch the e-mails about alerts on or off for one member (`by_email`), or set their quiet hours (`quiet_from`,
    `quiet_until`, `time_zone`)."""
    membership = reader.membership
    audit.record(
        "alert_emails.update",
        organization_id=membership.organization_id,
        resource=membership,
        details=audit.changes_of(reader, choices),
    )
    return _set(reader, **choices)


def _set(reader: AlertReader, **columns: Any) -> AlertReader:
    """Store some of a member's choices; the others keep their values."""
    defaults = {"by_email": reader.by_email, "read_until": reader.read_until} | columns
    row, _ = AlertReader.objects.update_or_create(
        membership=reader.membership, defaults=columns, create_defaults=defaults
    )
    return row
