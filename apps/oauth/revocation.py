"""Revocation of the programs that a member who leaves has signed in; their API keys end as all of the member's do."""

from __future__ import annotations

from uuid import UUID

from apps.oauth.models import Consent
from apps.oauth.token_families import end_consents


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """End a member's consents in an organization, inside the caller's transaction; return 0: none is a key."""
    end_consents(Consent.objects.filter(project__organization=organization_id, user=user_id))
    return 0
