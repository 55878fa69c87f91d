"""Log sinks on an organization's page in the admin."""

from __future__ import annotations

from typing import Any

from apps.log_sinks.models import LogSink
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _sinks(organization: Organization) -> Any:
    return LogSink.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "log-sinks",
        "Log sinks",
        "log_sinks.view_logsink",
        lambda row: list_of("log_sinks_logsink", organization__id__exact=row.pk),
        ("Name", "Kind", "Address", "Status", "Created"),
        _sinks,
        lambda row: (link_to(row), row.get_kind_display(), row.url, row.status, moment(row.created_at)),
    ),
]
