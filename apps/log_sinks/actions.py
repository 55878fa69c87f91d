"""Actions on log sinks: register, change, and sending a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.destinations import actions as destinations
from apps.log_sinks import delivery
from apps.log_sinks.access import SINKS
from apps.log_sinks.kinds import Credentials
from apps.log_sinks.models import LogSink
from apps.organizations.models import Organization

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
    destinations.check_address(organization.id, given.url)


def create_sink(*, organization: Organization, given: NewSink) -> LogSink:
    """Store a sink with a checked address and encrypted credentials. It receives the rows that are written from now on.

    Raises InvalidRequest at the limit of sinks, InvalidFields for a name in use; NotFound if the organization was
    deleted meanwhile.
    """
    columns: dict[str, Any] = {"name": given.name, "kind": given.kind, "url": given.url, "options": given.options}
    columns["include_content"] = given.include_content
    return destinations.create(SINKS, organization, columns, given.credentials, MAX_SINKS)


def change_sink(*, sink: LogSink, changes: Mapping[str, Any]) -> LogSink:
    """Set `status`, `name`, `include_content` or `credentials`; waiting rows are then tried at once.

    Raises InvalidFields, NotFound if it was deleted meanwhile.
    """
    return destinations.change(SINKS, sink, changes)


def test_sink(*, sink: LogSink) -> None:
    """Send a made-up row to a sink; nothing changes. Takes as long as the sink does.

    Raises InvalidRequest with the error, NotFound for a deleted sink.
    """
    destinations.send_test(SINKS, sink, delivery.send_sample)
