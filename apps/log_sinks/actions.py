"""Actions on log sinks: register, change, each in one transaction; and sending a sample.

A sink's address cannot be changed, because that would redirect the log and the credentials. Credentials are stored
encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.kernel.errors import InvalidRequest, NotFound
from apps.keys.ssrf_guard import check_url_field
from apps.log_sinks import delivery
from apps.log_sinks.access import SINKS
from apps.log_sinks.credentials import Credentials, encrypt_credentials
from apps.log_sinks.exchange import SinkFailed
from apps.log_sinks.models import LogSink
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call

# Sinks of one organization: each row of its log is queued for all of them.
MAX_SINKS = 5


@dataclass(frozen=True, slots=True)
class NewSink:
    """A new sink; `options` are those of its kind."""

    name: str
    kind: str
    url: str
    options: dict[str, Any]
    include_content: bool
    credentials: Credentials = field(repr=False)


def check_sink(*, organization: Organization, given: NewSink) -> None:
    """Check that a new sink's address may be called. Raises InvalidFields, RateLimited. Takes as long as the lookup."""
    with outside_call(organization.id):
        check_url_field(given.url, "url", organization.id)


@transaction.atomic
def create_sink(*, organization: Organization, given: NewSink) -> LogSink:
    """Store a sink with a checked address and encrypted credentials. It receives the rows that are written from now on.

    Raises InvalidRequest at the limit of sinks, InvalidFields for a name in use; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"name": given.name, "kind": given.kind, "url": given.url, "options": given.options}
    columns |= {"include_content": given.include_content, **_sealed(given.credentials)}
    sink = SINKS.create(organization, columns, max_rows=MAX_SINKS)
    # The database sets the time of the next attempt.
    sink.refresh_from_db()
    return sink


@transaction.atomic
def change_sink(*, sink: LogSink, changes: Mapping[str, Any]) -> LogSink:
    """Set `status`, `name`, `include_content` or `credentials`; waiting rows are then tried at once.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = SINKS.lock(sink)
    columns = {name: value for name, value in changes.items() if name != "credentials"}
    taken = SINKS.living.filter(organization=row.organization_id, name=columns.get("name"))
    if taken.exclude(pk=row.pk).exists():
        raise SINKS.name_taken()
    details = audit.changes_of(row, columns)
    if "credentials" in changes:
        columns |= _sealed(changes["credentials"])
        details["credentials"] = "replaced"
    if columns.get("status") == LogSink.Status.ACTIVE or "credentials" in changes:
        # The change may have fixed the problem.
        columns |= {"failures": 0, "failing_since": None, "next_attempt_at": timezone.now()}
    SINKS.update(row, columns, details)
    return row


def test_sink(*, sink: LogSink) -> None:
    """Send a made-up row to a sink; nothing changes. Takes as long as the sink does.

    Raises InvalidRequest with the error, NotFound for a deleted sink.
    """
    if sink.status == LogSink.Status.DELETED:
        raise NotFound(SINKS.missing)
    try:
        with outside_call(sink.organization_id):
            delivery.send_sample(sink)
    except SinkFailed as failure:
        raise InvalidRequest(failure.message, code="log_sink_failed") from failure


def _sealed(credentials: Credentials) -> dict[str, Any]:
    """Return the columns with the credentials."""
    return {"encrypted_credentials": encrypt_credentials(credentials), "masked_credentials": credentials.masked}
