"""Hook of organizations: the erasure of files and batches."""

from __future__ import annotations

from uuid import UUID

from apps.batches.retention import erase_organization


def erase(organization_id: UUID) -> None:
    """Remove every file and batch, with the lines that are still to be answered."""
    erase_organization(organization_id)
