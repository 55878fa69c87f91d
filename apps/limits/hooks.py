"""Hooks of organizations: their limits in the admin, and the erasure of limits, counters and charges."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.money import plain
from apps.kernel.postgres.rows import delete_in_pieces
from apps.limits.models import Limit, LimitCharge, LimitCounter
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of

TABS = [
    Tab(
        "limits",
        "Limits",
        "limits.view_limit",
        lambda row: list_of("limits_limit", organization__id__exact=row.pk),
        ("Limit", "Scope", "Counts", "Amount", "Action"),
        lambda organization: Limit.objects.filter(organization=organization).order_by("-id"),
        lambda row: (link_to(row), row.scope, f"{row.counts} {row.window_text}", plain(row.amount), row.action),
    )
]


def erase(organization_id: UUID) -> None:
    """Delete all limits, counters and charges; counters and charges have no names, and go with them."""
    Limit.objects.filter(organization=organization_id).delete()
    delete_in_pieces(LimitCharge.objects.filter(organization_id=organization_id))
    delete_in_pieces(LimitCounter.objects.filter(organization_id=organization_id))
