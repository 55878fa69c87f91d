"""The gateway's links on an organization's page in the admin: its logged and refused requests."""

from __future__ import annotations

from apps.organizations.operators.organization_tabs import Tab, list_of

TABS = [
    Tab(
        "logs",
        "Request log",
        "logs.view_requestlog",
        lambda row: list_of("logs_requestlog", organization__id__exact=row.pk),
    ),
    Tab(
        "refusals",
        "Refused requests",
        "logs.view_refusedhour",
        lambda row: list_of("logs_refusedhour", q=row.pk),
    ),
]
