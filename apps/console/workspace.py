"""The workspace: the organization of a page, the visitor's role in it, and its other pages.

The organization is part of every page's path, so pages can be linked and several opened side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from apps.kernel.errors import NotFound
from apps.organizations.access import access_organization, reaches
from apps.organizations.models import Organization, Project, Role, Team, User
from apps.organizations.teams.access import leads_any, seen_by


@dataclass(frozen=True)
class Workspace:
    """An organization as one of its members sees it."""

    user: User
    session: Any
    organization: Organization
    role: Role

    @cached_property
    def organizations(self) -> list[Organization]:
        """The organizations of the visitor, by name."""
        return organizations_of(self.user)

    @cached_property
    def projects(self) -> list[Project]:
        """The organization's projects, also archived ones, oldest first."""
        rows = self.organization.projects.exclude(status=Project.Status.DELETED)
        return list(rows.order_by("created_at", "id"))

    @cached_property
    def teams(self) -> list[Team]:
        """The teams that the visitor sees, by name."""
        return list(seen_by(self.user, self.organization, self.role))

    @cached_property
    def is_lead(self) -> bool:
        """Whether the visitor leads a team."""
        return leads_any(self.user, *(team.pk for team in self.teams))

    @property
    def is_admin(self) -> bool:
        """Whether the visitor has the rights of an admin."""
        return reaches(self.role, Role.ADMIN)

    @property
    def is_owner(self) -> bool:
        """Whether the visitor has the rights of an owner."""
        return self.role is Role.OWNER

    def require_own(self, organization_id: UUID, missing: str) -> None:
        """Raise NotFound for objects of another organization, even one that the visitor belongs to."""
        if organization_id != self.organization.id:
            raise NotFound(missing)


def open_workspace(user: User, session: Any, organization_id: str, needs: Role = Role.DEVELOPER) -> Workspace:
    """Return the workspace. Raises NotFound; Forbidden for non-members and insufficient roles."""
    organization, role = access_organization(user, organization_id, needs)
    return Workspace(user, session, organization, role)


def organizations_of(user: User) -> list[Organization]:
    """Return the organizations of a user, by name."""
    rows = Organization.objects.filter(memberships__user=user).exclude(status=Organization.Status.DELETED)
    return list(rows.order_by("name", "id"))
