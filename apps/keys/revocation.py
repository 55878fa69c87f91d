"""Revocation of the API keys of a member who leaves."""

from __future__ import annotations

from uuid import UUID

from apps.keys.actions import end_api_key
from apps.keys.models import ApiKey


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Delete the keys that a member created in an organization, inside the caller's transaction; return how many."""
    keys = ApiKey.objects.select_for_update(no_key=True).exclude(status=ApiKey.Status.DELETED)
    mine = list(keys.filter(project__organization=organization_id, created_by=user_id).order_by("id"))
    for key in mine:
        end_api_key(key)
    return len(mine)
