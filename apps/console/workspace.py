"""The workspace: the organization whose pages a visitor is on, in which role, and what they can go to from there.

The organization stands in the path of every page, so that a page can be linked and two can be open side by side.
Knows the door to an organization. Must never decide what a role may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from apps.kernel.errors import NotFound
from apps.organizations.access import access_organization, reaches
from apps.organizations.models import Organization, Project, Role, User


@dataclass(frozen=True)
class Workspace:
    """An organization as one of its members visits it."""

    user: User
    session: Any
    organization: Organization
    role: Role

    @cached_property
    def organizations(self) -> list[Organization]:
        """The organizations that the visitor is a member of, by name."""
        return organizations_of(self.user)

    @cached_property
    def projects(self) -> list[Project]:
        """The organization's projects, archived ones too, oldest first."""
        rows = self.organization.projects.exclude(status=Project.Status.DELETED)
        return list(rows.order_by("created_at", "id"))

    @property
    def is_admin(self) -> bool:
        """Whether the visitor may do what admins may."""
        return reaches(self.role, Role.ADMIN)

    @property
    def is_owner(self) -> bool:
        """Whether the visitor may do what owners may."""
        return self.role is Role.OWNER

    def require_own(self, organization_id: UUID, missing: str) -> None:
        """Raise NotFound for what another organization has, also where the visitor may see it there."""
        if organization_id != self.organization.id:
            raise NotFound(missing)


def open_workspace(user: User, session: Any, organization_id: str, needs: Role = Role.DEVELOPER) -> Workspace:
    """Return the workspace. Raises NotFound; Forbidden for strangers and for roles that do not reach."""
    organization, role = access_organization(user, organization_id, needs)
    return Workspace(user, session, organization, role)


def organizations_of(user: User) -> list[Organization]:
    """Return the organizations that somebody is a member of, by name."""
    rows = Organization.objects.filter(memberships__user=user).exclude(status=Organization.Status.DELETED)
    return list(rows.order_by("name", "id"))
