"""Hooks of organizations: the erasure of consents, and the revocation of programs that a person has signed in."""

from __future__ import annotations

from uuid import UUID

from apps.keys.actions import end_api_key
from apps.keys.models import ApiKey
from apps.oauth.models import Consent, KeyCode
from apps.oauth.tokens import end_consents


def erase(organization_id: UUID) -> None:
    """Delete them; clients belong to no organization and stay."""
    Consent.objects.filter(project__organization=organization_id).delete()
    KeyCode.objects.filter(project__organization=organization_id).delete()


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """End a member's consents in an organization, inside the caller's transaction; return 0: none is a key.

    Their API keys end as all of the member's do.
    """
    end_consents(Consent.objects.filter(project__organization=organization_id, user=user_id))
    KeyCode.objects.filter(project__organization=organization_id, user=user_id, used_at=None).delete()
    return 0


def end_programs(user_id: UUID) -> None:
    """End a person's consents everywhere with the API keys that were made for them, inside the caller's transaction.

    API keys that a program was given to keep stay, as all do that the person made.
    """
    living = Consent.objects.filter(user=user_id, revoked_at=None)
    keys = ApiKey.objects.select_for_update(no_key=True).exclude(status=ApiKey.Status.DELETED)
    for key in keys.filter(pk__in=living.values("api_key")).order_by("id"):
        end_api_key(key)
    end_consents(living)
    KeyCode.objects.filter(user=user_id, used_at=None).delete()
