"""Organization lookup for commands, by id or exact name as an operator typed it; and the addresses of its owners."""

from __future__ import annotations

from uuid import UUID

from apps.kernel.ids import find_id
from apps.organizations.models import Membership, Organization, Role


class UnclearOrganizationError(ValueError):
    """No organization is meant, or more than one; the message says which."""


def find_organization(text: str) -> Organization:
    """Return the organization with this id or exact name. Raises UnclearOrganizationError."""
    identifier = find_id(text)
    rows = Organization.objects.filter(pk=identifier) if identifier else Organization.objects.filter(name=text)
    match list(rows.order_by("created_at", "id")):
        case [organization]:
            return organization
        case []:
            raise UnclearOrganizationError(f"There is no organization {text!r}")
        case several:
            ids = ", ".join(str(one.id) for one in several)
            raise UnclearOrganizationError(f"{len(several)} organizations are called {text!r}; say which by id: {ids}")


def owner_addresses(organization_id: UUID) -> set[str]:
    """Return the e-mail addresses of the owners who may still sign in."""
    owners = Membership.objects.filter(organization=organization_id, role=Role.OWNER, user__is_active=True)
    return set(owners.values_list("user__email", flat=True))
