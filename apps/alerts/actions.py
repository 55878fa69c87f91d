"""Actions on alerts: add and change rules and destinations, mark as read, and choose e-mails; and sending a test.

A destination's address cannot be changed, because that would redirect the alerts. Credentials are stored encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.alerts import delivery
from apps.alerts.access import DESTINATIONS, RULES
from apps.alerts.credentials import Credentials, IncomingWebhook, encrypt_credentials
from apps.alerts.evaluation import watch
from apps.alerts.firing import resolve_rule
from apps.alerts.models import AlertDestination, AlertReader, AlertRule
from apps.kernel.errors import InvalidRequest, NotFound
from apps.keys.ssrf_guard import check_url_field
from apps.log_sinks.exchange import SinkFailed
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call

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
def create_rule(*, organization: Organization, kind: str, parameters: Mapping[str, Any]) -> AlertRule:
    """Store a rule. Raises InvalidRequest at the limit of rules, InvalidFields for a rule that exists already; NotFound
    if the organization was deleted meanwhile."""
    watch(organization.id, timezone.now())
    return RULES.create(organization, {"kind": kind, "parameters": dict(parameters)}, max_rows=MAX_RULES)


@transaction.atomic
def change_rule(*, rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """Set `status`; the open alerts of a rule that is switched off are resolved. Raises NotFound if it was deleted
    meanwhile."""
    row = RULES.lock(rule)
    RULES.update(row, changes, audit.changes_of(row, changes))
    if row.status != AlertRule.Status.ACTIVE:
        resolve_rule(row, timezone.now())
    return row


def check_destination(*, organization: Organization, given: NewDestination) -> None:
    """Check that a new destination's address may be called. Raises InvalidFields, RateLimited. Takes as long as the
    lookup."""
    with outside_call(organization.id):
        check_url_field(given.url, "url", organization.id)


@transaction.atomic
def create_destination(*, organization: Organization, given: NewDestination) -> AlertDestination:
    """Store a destination with a checked address and encrypted credentials. It gets the alerts from now on.

    Raises InvalidRequest at the limit of destinations, InvalidFields for a name in use; NotFound if the organization
    was deleted meanwhile.
    """
    is_secret = isinstance(given.credentials, IncomingWebhook)
    columns: dict[str, Any] = {"name": given.name, "kind": given.kind, **_sealed(given.credentials)}
    columns["url"] = given.credentials.masked if is_secret else given.url
    destination = DESTINATIONS.create(organization, columns, max_rows=MAX_DESTINATIONS)
    # The database sets the time of the next attempt.
    destination.refresh_from_db()
    return destination


@transaction.atomic
def change_destination(*, destination: AlertDestination, changes: Mapping[str, Any]) -> AlertDestination:
    """Set `status`, `name` or `credentials`; waiting messages are then tried at once.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = DESTINATIONS.lock(destination)
    columns = {name: value for name, value in changes.items() if name != "credentials"}
    taken = DESTINATIONS.living.filter(organization=row.organization_id, name=columns.get("name"))
    if taken.exclude(pk=row.pk).exists():
        raise DESTINATIONS.name_taken()
    details = audit.changes_of(row, columns)
    if "credentials" in changes:
        columns |= _sealed(changes["credentials"])
        details["credentials"] = "replaced"
    if columns.get("status") == AlertDestination.Status.ACTIVE or "credentials" in changes:
        # The change may have fixed the problem.
        columns |= {"failures": 0, "failing_since": None, "next_attempt_at": timezone.now()}
    DESTINATIONS.update(row, columns, details)
    return row


def test_destination(*, destination: AlertDestination) -> None:
    """Send a made-up alert to a destination; nothing changes. Takes as long as the destination does.

    Raises InvalidRequest with the error, NotFound for a deleted destination.
    """
    if destination.status == AlertDestination.Status.DELETED:
        raise NotFound(DESTINATIONS.missing)
    try:
        with outside_call(destination.organization_id):
            delivery.send_test(destination)
    except SinkFailed as failure:
        raise InvalidRequest(failure.message, code="alert_destination_failed") from failure


def mark_read(*, reader: AlertReader, until: datetime) -> AlertReader:
    """Mark the alerts up to a time as read for one member; later ones stay unread."""
    return _set(reader, read_until=max(until, reader.read_until or until))


@transaction.atomic
def choose_emails(*, reader: AlertReader, by_email: bool) -> AlertReader:
    """Switch the e-mails about alerts on or off for one member."""
    membership = reader.membership
    audit.record(
        "alert_emails.update",
        organization_id=membership.organization_id,
        resource=membership,
        details=audit.changes_of(reader, {"by_email": by_email}),
    )
    return _set(reader, by_email=by_email)


def _set(reader: AlertReader, **columns: Any) -> AlertReader:
    """Store some of a member's choices; the others keep their values."""
    defaults = {"by_email": reader.by_email, "read_until": reader.read_until} | columns
    row, _ = AlertReader.objects.update_or_create(
        membership=reader.membership, defaults=columns, create_defaults=defaults
    )
    return row


def _sealed(credentials: Credentials) -> dict[str, Any]:
    """Return the columns with the credentials."""
    return {"encrypted_credentials": encrypt_credentials(credentials), "masked_credentials": credentials.masked}
