"""Alerts and their destinations on an organization's page in the admin."""

from __future__ import annotations

from typing import Any

from apps.alerts.models import Alert, AlertDestination
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _alerts(organization: Organization) -> Any:
    return Alert.objects.filter(organization=organization).order_by("-id")


def _destinations(organization: Organization) -> Any:
    return AlertDestination.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "alerts",
        "Alerts",
        "alerts.view_alert",
        lambda row: list_of("alerts_alert", organization__id__exact=row.pk),
        ("Alert", "Kind", "Fired", "Resolved"),
        _alerts,
        lambda row: (link_to(row), row.get_kind_display(), moment(row.fired_at), moment(row.resolved_at)),
    ),
    Tab(
        "alert-destinations",
        "Alert destinations",
        "alerts.view_alertdestination",
        lambda row: list_of("alerts_alertdestination", organization__id__exact=row.pk),
        ("Name", "Kind", "Address", "Status", "Created"),
        _destinations,
        lambda row: (link_to(row), row.get_kind_display(), row.url, row.status, moment(row.created_at)),
    ),
]
