"""Access control of API keys: users see their own keys, admins and owners all keys of an organization."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import QuerySet

from apps.kernel.errors import Forbidden
from apps.kernel.postgres.row_lookup import find_row
from apps.keys.iam import AccessRule
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.access import (
    access_organization,
    access_project,
    highest,
    reaches,
    roles_of,
)
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.models import Organization, Project, Role, User

NO_KEY, NO_RULE = "API key not found", "IAM rule not found"
PROVIDER_KEYS = IntegrationTable(
    model=ProviderKey,
    thing="provider_key",
    noun="provider key",
    order=("created_at", "id"),
    encrypted="encrypted_token",
    masks=(),
    unique="providerName",
    noted_new=("provider", "provider_name", "base_url"),
    noted_deleted=(),
)


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
    living = (
        ApiKey.objects.exclude(status=ApiKey.Status.DELETED)
        .exclude(project__status=Project.Status.DELETED)
        .exclude(project__organization__status=Organization.Status.DELETED)
        .select_related("project", "created_by")
    )
    key = find_row(living, identifier, NO_KEY)
    _, role = access_organization(user, key.project.organization_id)
    if key.created_by_id != user.id and not reaches(role, Role.ADMIN):
        raise Forbidden("Developers may manage only the API keys they created")
    return key


def access_rule(user: User, key_id: str, identifier: str) -> IamRule:
    """Return a rule of a key that the user may manage. Raises NotFound, also for a rule of another key; Forbidden."""
    return find_row(IamRule.objects.filter(api_key=access_key(user, key_id)), identifier, NO_RULE)


def refused_by(rule: AccessRule) -> Forbidden:
    """Return the refusal that names the rule, so that its owner can find it."""
    return Forbidden(f"Access denied by IAM rule {rule.id} ({rule.type}) of this API key", param="model")
