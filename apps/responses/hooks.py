"""Hook of organizations: the erasure of stored responses."""

from __future__ import annotations

from uuid import UUID

from apps.responses.retention import erase_organization


def erase(organization_id: UUID) -> None:
    """Remove every response, conversation and background run."""
    erase_organization(organization_id)
