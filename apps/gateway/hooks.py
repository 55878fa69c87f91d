"""Hooks of organizations: links to requests in the admin, and the erasure of kept answers."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.valkey.cache_store import CacheShare
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


def erase(organization_id: UUID) -> None:
    """Remove every entry of the organization. Raises RedisError."""
    CacheShare(organization_id, 0).forget_all()
