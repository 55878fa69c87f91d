"""Access control of log sinks: admins of an organization see and manage its sinks.

Knows the conditions, one a line. Must never write.
"""

from __future__ import annotations

from django.db.models import QuerySet

from apps.kernel.errors import NotFound
from apps.log_sinks.models import LogSink
from apps.organizations.access import access_organization, identify
from apps.organizations.models import Organization, Role, User

NO_SINK = "Log sink not found"


def access_sinks(user: User, organization_id: str) -> QuerySet[LogSink]:
    """Return the sinks of an organization that the user administers, by name. Raises as its door does."""
    organization, _ = access_organization(user, organization_id, Role.ADMIN)
    rows = LogSink.objects.filter(organization=organization).exclude(status=LogSink.Status.DELETED)
    return rows.order_by("name")


def access_sink(user: User, identifier: str) -> LogSink:
    """Return a sink of an organization that the user administers. Raises NotFound, Forbidden."""
    sink = (
        LogSink.objects.filter(pk=identify(identifier, NO_SINK))
        .exclude(status=LogSink.Status.DELETED)
        .exclude(organization__status=Organization.Status.DELETED)
        .select_related("organization")
        .first()
    )
    if sink is None:
        raise NotFound(NO_SINK)
    access_organization(user, sink.organization_id, Role.ADMIN)
    return sink
