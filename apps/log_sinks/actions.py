"""What can be done to log sinks: register, change, remove; each one transaction. And sending one a sample.

Knows that a sink's address is for good: whoever could change it could have the log and the credentials sent elsewhere.
Must never keep a credential in clear.
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
from apps.organizations import audit
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call
from apps.organizations.row_locks import lock_row

# Of one organization: each row of its log is queued for all of them.
MAX_SINKS = 5


@dataclass(frozen=True, slots=True)
class NewSink:
    """A sink as it was given; `options` are those of its kind."""

    name: str
    kind: str
    url: str
    options: dict[str, Any]
    include_content: bool
    credentials: Credentials = field(repr=False)


def check_sink(*, organization: Organization, given: NewSink) -> None:
    """See that a new sink's address may be called. Raises InvalidFields, RateLimited. Takes as long as its lookup."""
    with outside_call(organization.id):
        check_url_field(given.url, "url", organization.id)


def create_sink(*, organization: Organization, given: NewSink) -> LogSink:
    """Keep a sink whose address was checked, its credentials encrypted. It gets the rows that are written from now on.

    Raises InvalidRequest for one sink too many, InvalidFields for a name that is taken; NotFound when the organization
    was deleted meanwhile.
    """
    try:
        with transaction.atomic():
            # Those who register at once wait for each other here, and whoever deletes the organization for them.
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
            # The moment of the next attempt is the database's.
            sink.refresh_from_db()
            details: dict[str, Any] = {"name": sink.name, "kind": sink.kind, "url": sink.url, "options": sink.options}
            details |= {"includeContent": sink.include_content, "maskedCredentials": sink.masked_credentials}
            _record("create", sink, details)
            return sink
    except IntegrityError as error:
        raise InvalidFields([Issue("name", "Another log sink has this name")]) from error


@transaction.atomic
def change_sink(*, sink: LogSink, changes: Mapping[str, Any]) -> LogSink:
    """Set `status`, `name`, `include_content` or `credentials`; what waits is tried at once then.

    Raises InvalidFields, NotFound when it was deleted meanwhile.
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
        # What was wrong may be mended.
        columns |= {"failures": 0, "failing_since": None, "next_attempt_at": timezone.now()}
    _record("update", row, details)
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=[*columns, "updated_at"])
    return row


@transaction.atomic
def delete_sink(*, sink: LogSink) -> None:
    """End a sink; the credentials themselves are erased, and what waits is not sent. Raises NotFound if it is ended."""
    row = lock_row(sink, NO_SINK)
    _record("delete", row, {"name": row.name})
    row.status, row.encrypted_credentials, row.masked_credentials = LogSink.Status.DELETED, b"", ""
    row.save(update_fields=["status", "encrypted_credentials", "masked_credentials", "updated_at"])


def test_sink(*, sink: LogSink) -> None:
    """Send a sink a row that was made up; nothing changes. Takes as long as the sink does.

    Raises InvalidRequest with what went wrong, NotFound for a sink that is deleted.
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
