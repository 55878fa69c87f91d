"""Access control of limits: admins of an organization see and manage its limits."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.kernel.postgres.row_lookup import find_row
from apps.limits.models import Limit
from apps.organizations.access import access_organization
from apps.organizations.models import DELETED, Organization, Role, User

NO_LIMIT = "Limit not found"


def access_limits(user: User, organization_id: str) -> QuerySet[Limit]:
    """Return the limits of an organization that the user administers, by name. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.ADMIN)
    return limits_of(organization)


def limits_of(organization: Organization) -> QuerySet[Limit]:
    """Return an organization's limits, by name."""
    return Limit.objects.filter(organization=organization).order_by("name", "id")


def access_limit(user: User, identifier: str) -> Limit:
    """Return a limit of an organization that the user administers. Raises NotFound, Forbidden."""
    rows = Limit.objects.exclude(organization__status=DELETED).select_related("organization")
    limit = find_row(rows, identifier, NO_LIMIT)
    access_organization(user, limit.organization_id, Role.ADMIN)
    return limit
