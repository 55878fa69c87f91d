"""Deletes the saved views of a member who leaves."""

from __future__ import annotations

from uuid import UUID

from apps.logs.models import SavedView


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Delete a member's saved views in an organization, shared ones too; return 0: none is a key."""
    SavedView.objects.filter(organization=organization_id, created_by=user_id).delete()
    return 0
