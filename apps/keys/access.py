"""Which API keys a user may see: their own, or all of an organization for its admins and owners.

Knows the conditions, one a line. Must never write.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import QuerySet

from apps.kernel.errors import Forbidden
from apps.keys.models import ApiKey
from apps.organizations.access import access_project, highest, reaches, roles_of
from apps.organizations.models import Project, Role, User


class VisibleKeys(NamedTuple):
    """Keys that a user may see, oldest first; the project when one was named; the role that says so."""

    keys: QuerySet[ApiKey]
    project: Project | None
    role: Role


def access_keys(user: User, *, project_id: str | None, everyones: bool) -> VisibleKeys:
    """Return the keys of a project, or of every organization of the user's; `everyones` needs an admin there.

    Raises NotFound, and Forbidden when the role does not reach.
    """
    needs = Role.ADMIN if everyones else Role.DEVELOPER
    keys = (
        ApiKey.objects.exclude(status=ApiKey.Status.DELETED)
        .select_related("created_by")
        .prefetch_related("iam_rules")
        .order_by("created_at", "id")
    )
    if not everyones:
        keys = keys.filter(created_by=user)
    if project_id is not None:
        project, role = access_project(user, project_id, needs)
        return VisibleKeys(keys.filter(project=project), project, role)
    roles = roles_of(user)
    reached = {organization_id: role for organization_id, role in roles.items() if reaches(role, needs)}
    if everyones and not reached:
        raise Forbidden("Listing everyone's keys needs the role admin or owner")
    keys = keys.filter(project__organization__in=reached).exclude(project__status=Project.Status.DELETED)
    return VisibleKeys(keys, None, highest(roles))
