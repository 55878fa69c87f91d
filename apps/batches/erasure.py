"""Erasure of the files and batches of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.batches.retention import erase_organization


def erase(organization_id: UUID) -> None:
    """Remove every file and batch, with the lines that are still to be answered."""
    erase_organization(organization_id)
