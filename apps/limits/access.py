"""Access control of limits: admins see and manage an organization's limits, leads of teams those of their teams."""

from __future__ import annotations

from django.db.models import QuerySet

from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row
from apps.limits.models import Limit
from apps.organizations.access import access_organization, reaches, require
from apps.organizations.models import DELETED, Organization, Role, User
from apps.organizations.teams.access import leads_any, led_by

NO_LIMIT = "Limit not found"


def access_limits(user: User, organization_id: str) -> QuerySet[Limit]:
    """Return the limits of an organization that the user manages, by name. Raises NotFound, Forbidden."""
    organization, role = access_organization(user, organization_id)
    rows = limits_of(organization)
    led = led_by(user).filter(organization=organization)
    if reaches(role, Role.ADMIN) or not led.exists():
        require(role, Role.ADMIN)
        return rows
    return rows.filter(team__in=led.values("pk"))


def limits_of(organization: Organization) -> QuerySet[Limit]:
    """Return an organization's limits, by name."""
    return Limit.objects.filter(organization=organization).order_by("name", "id")


def access_limit(user: User, identifier: str) -> Limit:
    """Return a limit that the user manages. Raises NotFound, Forbidden."""
    rows = Limit.objects.exclude(organization__status=DELETED).select_related("organization")
    limit = find_row(rows, identifier, NO_LIMIT)
    role = access_organization(user, limit.organization_id).role
    if not leads_any(user, limit.team_id):
        require(role, Role.ADMIN)
    return limit


def access_new_limit(user: User, organization_id: str, scope: str, scope_id: str | None) -> Organization:
    """Return the organization in which the user may create a limit of this scope: an admin any, a lead their team's.

    Raises NotFound, Forbidden.
    """
    organization, role = access_organization(user, organization_id)
    if scope != Limit.Scope.TEAM or not leads_any(user, find_id(scope_id or "")):
        require(role, Role.ADMIN)
    return organization
