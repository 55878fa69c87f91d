"""Owners of an organization as recipients of e-mail."""

from __future__ import annotations

from uuid import UUID

from apps.organizations.models import Membership, Role


def owner_addresses(organization_id: UUID) -> set[str]:
    """Return the e-mail addresses of the owners who may still sign in."""
    owners = Membership.objects.filter(organization=organization_id, role=Role.OWNER, user__is_active=True)
    return set(owners.values_list("user__email", flat=True))
