"""Actions on destinations of all kinds: check the address, register, change, and send a test.

An address cannot be changed, because that would redirect deliveries and credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.destinations.credentials import sealed_columns
from apps.destinations.exchange import DeliveryFailed
from apps.destinations.models import Destination
from apps.kernel.errors import InvalidRequest, NotFound
from apps.keys.ssrf_guard import check_url_field
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call

To = TypeVar("To", bound=Destination)


def check_address(organization_id: UUID, url: str) -> None:
    """Check that a new destination's address may be called. Raises InvalidFields, RateLimited. Takes as long as the
    lookup."""
    with outside_call(organization_id):
        check_url_field(url, "url", organization_id)


@transaction.atomic
def create(
    table: IntegrationTable[To], organization: Organization, columns: Mapping[str, Any], credentials: Any, max_rows: int
) -> To:
    """Store a destination with a checked address and encrypted credentials. It gets what arises from now on.

    Raises InvalidRequest at the limit of rows, InvalidFields for a name in use; NotFound if the organization was
    deleted meanwhile.
    """
    row = table.create(organization, {**columns, **sealed_columns(credentials)}, max_rows=max_rows)
    # The database sets the time of the next attempt.
    row.refresh_from_db()
    return row


@transaction.atomic
def change(table: IntegrationTable[To], destination: To, changes: Mapping[str, Any]) -> To:
    """Set columns or `credentials`; what waits is then tried at once if that may have fixed a problem.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = table.lock(destination)
    columns = {name: value for name, value in changes.items() if name != "credentials"}
    taken = table.living.filter(organization=row.organization_id, name=columns.get("name"))
    if taken.exclude(pk=row.pk).exists():
        raise table.name_taken()
    details = audit.changes_of(row, columns)
    if "credentials" in changes:
        columns |= sealed_columns(changes["credentials"])
        details["credentials"] = "replaced"
    if columns.get("status") == Destination.Status.ACTIVE or "credentials" in changes:
        columns |= {"failures": 0, "failing_since": None, "next_attempt_at": timezone.now()}
    table.update(row, columns, details)
    return row


def send_test(table: IntegrationTable[To], destination: To, send: Callable[[To], None]) -> None:
    """Send a made-up message to a destination with `send`; nothing changes. Takes as long as the destination does.

    Raises InvalidRequest with the error, NotFound for a deleted destination.
    """
    if destination.status == Destination.Status.DELETED:
        raise NotFound(table.missing)
    try:
        with outside_call(destination.organization_id):
            send(destination)
    except DeliveryFailed as failure:
        raise InvalidRequest(failure.message, code=f"{table.thing}_failed") from failure
