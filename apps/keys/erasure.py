"""Erasure of the keys of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.keys.models import ApiKey, IamRule, ProviderKey


def erase(organization_id: UUID) -> None:
    """Remove credentials and rules. API keys stay, without a word: whoever still asks with one is told it is gone."""
    ProviderKey.objects.filter(organization=organization_id).delete()
    IamRule.objects.filter(api_key__project__organization=organization_id).delete()
    ApiKey.objects.filter(project__organization=organization_id).update(description="")
