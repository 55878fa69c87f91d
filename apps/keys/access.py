"""Access control of API keys: users see their own keys, leads those of their teams, admins and owners all keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.kernel.errors import Forbidden
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row
from apps.keys.iam import AccessRule
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.access import (
    access_organization,
    access_project,
    highest,
    reaches,
    require,
    roles_of,
)
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.models import Organization, Project, Role, Team, User
from apps.organizations.teams.access import NO_TEAM, access_team, leads_any, led_by, team_of_key, with_parts

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


def access_keys(user: User, *, project_id: str | None, everyones: bool, team_id: str | None = None) -> VisibleKeys:
    """Return the keys of a project, or of every organization of the user; limited to those of a team if set.

    `everyones` needs an admin, or a lead, who gets the keys of their teams. Raises NotFound, and Forbidden if the role
    is not sufficient.
    """
    keys = (
        ApiKey.objects.exclude(status=ApiKey.Status.DELETED)
        .select_related("created_by")
        .prefetch_related("iam_rules")
        .order_by("created_at", "id")
    )
    if team_id is not None:
        keys = keys.filter(is_of_teams([_seen_team(user, team_id).pk]))
    if not everyones:
        keys = keys.filter(created_by=user)
    if project_id is not None:
        project, role = access_project(user, project_id)
        if everyones and not leads_any(user, project.team_id):
            require(role, Role.ADMIN)
        return VisibleKeys(keys.filter(project=project), project, role)
    roles = roles_of(user)
    keys = keys.filter(project__organization__in=roles).exclude(project__status=Project.Status.DELETED)
    if everyones:
        administered = [organization_id for organization_id, role in roles.items() if reaches(role, Role.ADMIN)]
        led = dict(led_by(user).filter(organization__in=roles).values_list("pk", "organization"))
        if not (administered or led):
            raise Forbidden("Listing everyone's keys needs the role admin or owner")
        own = Q(created_by=user, project__organization__in=set(led.values()))
        keys = keys.filter(Q(project__organization__in=administered) | is_of_teams(led) | own)
    return VisibleKeys(keys, None, highest(roles))


def is_of_teams(team_ids: Collection[UUID]) -> Q:
    """Return the condition for keys of teams: put into one, or of a project in one; also in a part of one."""
    teams = with_parts(*team_ids)
    return Q(team__in=teams) | Q(project__team__in=teams)


def _seen_team(user: User, identifier: str) -> Team:
    """Return a team by its id alone. Raises NotFound; Forbidden for teams that the user does not see."""
    living = Team.objects.exclude(organization__status=Organization.Status.DELETED)
    return access_team(user, find_row(living, identifier, NO_TEAM).organization_id, identifier).team


def access_key(user: User, identifier: str) -> ApiKey:
    """Return a key that the user may manage: one they created, one of a team that they lead, any as an admin.

    Raises NotFound, Forbidden.
    """
    living = (
        ApiKey.objects.exclude(status=ApiKey.Status.DELETED)
        .exclude(project__status=Project.Status.DELETED)
        .exclude(project__organization__status=Organization.Status.DELETED)
        .select_related("project", "created_by")
    )
    key = find_row(living, identifier, NO_KEY)
    _, role = access_organization(user, key.project.organization_id)
    is_own = key.created_by_id == user.id or reaches(role, Role.ADMIN)
    if not is_own and not leads_any(user, key.team_id, key.project.team_id):
        raise Forbidden("Developers may manage only the API keys they created")
    return key


def check_team_change(user: User, key: ApiKey, team_id: str | None) -> None:
    """Raise InvalidFields or Forbidden unless a user who may manage a key may put it into a team, or into none.

    Its creator may put it into a team; taking it out of one needs an admin or a lead of that team. Call it inside the
    transaction of the change.
    """
    organization, role = access_organization(user, key.project.organization_id)
    if team_id is not None:
        team_of_key(user, organization, role, team_id)
    is_left = key.team_id is not None and find_id(team_id or "") != key.team_id
    if is_left and not reaches(role, Role.ADMIN) and not leads_any(user, key.team_id):
        raise Forbidden("Only admins and the team's leads take an API key out of a team", param="teamId")


def access_rule(user: User, key_id: str, identifier: str) -> IamRule:
    """Return a rule of a key that the user may manage. Raises NotFound, also for a rule of another key; Forbidden."""
    return find_row(IamRule.objects.filter(api_key=access_key(user, key_id)), identifier, NO_RULE)


def refused_by(rule: AccessRule) -> Forbidden:
    """Return the refusal that names the rule, so that its owner can find it."""
    return Forbidden(f"Access denied by IAM rule {rule.id} ({rule.type}) of this API key", param="model")
