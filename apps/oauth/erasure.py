"""Erasure of the consents of a deleted organization, with their codes and tokens."""

from __future__ import annotations

from uuid import UUID

from apps.oauth.models import Consent, KeyCode


def erase(organization_id: UUID) -> None:
    """Delete them; clients belong to no organization and stay."""
    Consent.objects.filter(project__organization=organization_id).delete()
    KeyCode.objects.filter(project__organization=organization_id).delete()
