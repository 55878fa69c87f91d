"""Actions on log sinks: register, change, remove, each in one transaction; and sending a sample.

A sink's address cannot be changed, because that would redirect the log and the credentials. Credentials are stored
encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.keys.ssrf_guard import check_url_field
from apps.log_sinks import delivery
from apps.log_sinks.access import NO_SINK
from apps.log_sinks.credentials import Credentials, encrypt_credentials
from apps.log_sinks.exchange import SinkFailed
from apps.log_sinks.models import LogSink
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call
from apps.organizations.row_locks import lock_row

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


def create_sink(*, organization: Organization, given: NewSink) -> LogSink:
    """Store a sink with a checked address and encrypted credentials. It receives the rows that are written from now on.

    Raises InvalidRequest at the limit of sinks, InvalidFields for a name in use; NotFound if the organization was
    deleted meanwhile.
    """
    try:
        with transaction.atomic():
            # The lock serializes concurrent registration and deletion of the organization.
            lock_row(organization, NO_ORGANIZATION)
            living = LogSink.objects.filter(organization=organization).exclude(status=LogSink.Status.DELETED)
            if living.count() >= MAX_SINKS:
                raise InvalidRequest(f"Maximum {MAX_SINKS} log sinks per organization", code="log_sink_limit")
            sink = LogSink.objects.create(
                organization=organization,
                name=given.name,
                kind=given.kind,
                url=given.url,
                options=given.options,
                include_content=given.include_content,
                encrypted_credentials=encrypt_credentials(given.credentials),
                masked_credentials=given.credentials.masked,
            )
            # The database sets the time of the next attempt.
            sink.refresh_from_db()
            details: dict[str, Any] = {"name": sink.name, "kind": sink.kind, "url": sink.url, "options": sink.options}
            details |= {"includeContent": sink.include_content, "maskedCredentials": sink.masked_credentials}
            _record("create", sink, details)
            return sink
    except IntegrityError as error:
        raise InvalidFields([Issue("name", "Another log sink has this name")]) from error


@transaction.atomic
def change_sink(*, sink: LogSink, changes: Mapping[str, Any]) -> LogSink:
    """Set `status`, `name`, `include_content` or `credentials`; waiting rows are then tried at once.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    row = lock_row(sink, NO_SINK)
    columns = {name: value for name, value in changes.items() if name != "credentials"}
    taken = LogSink.objects.filter(organization=row.organization_id, name=columns.get("name"))
    if taken.exclude(status=LogSink.Status.DELETED).exclude(pk=row.pk).exists():
        raise InvalidFields([Issue("name", "Another log sink has this name")])
    details = audit.changes_of(row, columns)
    if "credentials" in changes:
        credentials: Credentials = changes["credentials"]
        columns |= {"encrypted_credentials": encrypt_credentials(credentials), "masked_credentials": credentials.masked}
        details["credentials"] = "replaced"
    if columns.get("status") == LogSink.Status.ACTIVE or "credentials" in changes:
        # The change may have fixed the problem.
        columns |= {"failures": 0, "failing_since": None, "next_attempt_at": timezone.now()}
    _record("update", row, details)
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=[*columns, "updated_at"])
    return row


@transaction.atomic
def delete_sink(*, sink: LogSink) -> None:
    """Delete a sink and erase its credentials; waiting rows are not sent. Raises NotFound if it already is deleted."""
    row = lock_row(sink, NO_SINK)
    _record("delete", row, {"name": row.name})
    row.status, row.encrypted_credentials, row.masked_credentials = LogSink.Status.DELETED, b"", ""
    row.save(update_fields=["status", "encrypted_credentials", "masked_credentials", "updated_at"])


def test_sink(*, sink: LogSink) -> None:
    """Send a made-up row to a sink; nothing changes. Takes as long as the sink does.

    Raises InvalidRequest with the error, NotFound for a deleted sink.
    """
    if sink.status == LogSink.Status.DELETED:
        raise NotFound(NO_SINK)
    try:
        with outside_call(sink.organization_id):
            delivery.send_sample(sink)
    except SinkFailed as failure:
        raise InvalidRequest(failure.message, code="log_sink_failed") from failure


def _record(verb: str, sink: LogSink, details: dict[str, Any]) -> None:
    audit.record(f"log_sink.{verb}", organization_id=sink.organization_id, resource=sink, details=details)
