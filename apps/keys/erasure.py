"""Erasure of the keys of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.keys.models import ApiKey, IamRule, ProviderKey


def erase(organization_id: UUID) -> None:
    """Delete credentials and rules. API keys stay without personal data, so that late requests get an exact error."""
    ProviderKey.objects.filter(organization=organization_id).delete()
    IamRule.objects.filter(api_key__project__organization=organization_id).delete()
    ApiKey.objects.filter(project__organization=organization_id).update(description="")
