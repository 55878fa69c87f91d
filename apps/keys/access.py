"""Access control of API keys: users see their own keys, admins and owners all keys of an organization."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import QuerySet

from apps.kernel.errors import Forbidden, NotFound
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.access import (
    access_organization,
    access_project,
    access_row_as_admin,
    access_rows_as_admin,
    highest,
    identify,
    reaches,
    roles_of,
)
from apps.organizations.models import Organization, Project, Role, User

NO_KEY, NO_RULE, NO_PROVIDER_KEY = "API key not found", "IAM rule not found", "Provider key not found"


class VisibleKeys(NamedTuple):
    """Keys that a user may see, oldest first; the requested project, if any; the user's role."""

    keys: QuerySet[ApiKey]
    project: Project | None
    role: Role


def access_keys(user: User, *, project_id: str | None, everyones: bool) -> VisibleKeys:
    """Return the keys of a project, or of every organization of the user; `everyones` needs an admin.

    Raises NotFound, and Forbidden if the role is not sufficient.
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


def access_key(user: User, identifier: str) -> ApiKey:
    """Return a key that the user may manage: one they created, any as an admin. Raises NotFound, Forbidden."""
    key = (
        ApiKey.objects.filter(pk=identify(identifier, NO_KEY))
        .exclude(status=ApiKey.Status.DELETED)
        .exclude(project__status=Project.Status.DELETED)
        .exclude(project__organization__status=Organization.Status.DELETED)
        .select_related("project", "created_by")
        .first()
    )
    if key is None:
        raise NotFound(NO_KEY)
    _, role = access_organization(user, key.project.organization_id)
    if key.created_by_id != user.id and not reaches(role, Role.ADMIN):
        raise Forbidden("Developers may manage only the API keys they created")
    return key


def access_rule(user: User, key_id: str, identifier: str) -> IamRule:
    """Return a rule of a key that the user may manage. Raises NotFound, also for a rule of another key; Forbidden."""
    rule = IamRule.objects.filter(api_key=access_key(user, key_id), pk=identify(identifier, NO_RULE)).first()
    if rule is None:
        raise NotFound(NO_RULE)
    return rule


def access_provider_keys(user: User, organization_id: str) -> QuerySet[ProviderKey]:
    """Return the provider keys of an organization that the user administers, oldest first. Raises NotFound,
    Forbidden."""
    return access_rows_as_admin(ProviderKey, user, organization_id).order_by("created_at", "id")


def access_provider_key(user: User, identifier: str) -> ProviderKey:
    """Return a provider key of an organization that the user administers. Raises NotFound, Forbidden."""
    return access_row_as_admin(ProviderKey, user, identifier, NO_PROVIDER_KEY)
