"""Access control of log sinks: admins of an organization see and manage its sinks."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.log_sinks.models import LogSink
from apps.organizations.access import access_row_as_admin, access_rows_as_admin
from apps.organizations.models import User

NO_SINK = "Log sink not found"


def access_sinks(user: User, organization_id: str) -> QuerySet[LogSink]:
    """Return the sinks of an organization that the user administers, by name. Raises NotFound, Forbidden."""
    return access_rows_as_admin(LogSink, user, organization_id).order_by("name")


def access_sink(user: User, identifier: str) -> LogSink:
    """Return a sink of an organization that the user administers. Raises NotFound, Forbidden."""
    return access_row_as_admin(LogSink, user, identifier, NO_SINK)
