"""Access control of logs: the organizations, projects and keys that a caller may see, and since when.

Activity is seen for all of a user's organizations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.kernel.errors import Forbidden
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row
from apps.keys.access import NO_KEY, is_of_teams
from apps.keys.models import ApiKey, ProviderKey
from apps.logs.activity import ActivityScope
from apps.logs.retention import visible_to
from apps.organizations.access import access_organization, access_project, roles_of
from apps.organizations.models import DELETED, Project, Team, User
from apps.organizations.teams.access import NO_TEAM, access_team


@dataclass(frozen=True, slots=True)
class LogScope:
    """The visible logs: each organization's since a moment; limited to one project or key, or to a set of keys, if set.

    The project belongs to an organization in the scope, the key to the project: the narrowest id implies the others.
    """

    since: Mapping[UUID, datetime]
    project_id: UUID | None = None
    api_key_id: UUID | None = None
    provider_key_id: UUID | None = None
    # The keys of a team, also deleted ones; None without one.
    key_ids: frozenset[UUID] | None = None
    # The user whose scope it is; None for an API key, which names no team.
    reader: User | None = None


@dataclass(frozen=True, slots=True)
class RequestedIds:
    """The ids in a caller's request, as text."""

    organization_id: str | None = None
    project_id: str | None = None
    api_key_id: str | None = None
    provider_key_id: str | None = None
    team_id: str | None = None


def scope_of_key(key: ApiKey, now: datetime) -> LogScope:
    """Return the scope of an API key: its own project."""
    return LogScope(visible_to([key.project.organization_id], now), key.project_id)


def scope_of_user(user: User, now: datetime) -> LogScope:
    """Return the scope of a user: all of their organizations."""
    return LogScope(visible_to(roles_of(user), now), reader=user)


def access_logs(scope: LogScope, named: RequestedIds) -> LogScope:
    """Return the scope limited to the named ids; a team only for a user who is in it, leads it, or is an admin.

    Raises Forbidden for an id outside of it.
    """
    organizations, project_id, api_key_id, provider_key_id = set(scope.since), scope.project_id, None, None
    if named.organization_id is not None:
        organizations &= {_organization(scope, named.organization_id)}
    if named.project_id is not None:
        project = _project(scope, named.project_id)
        organizations &= {project.organization_id}
        project_id = project.id
    if named.api_key_id is not None:
        key = _api_key(scope, named.api_key_id)
        # If the key belongs to a project other than the named one, nothing matches.
        organizations &= {key.project.organization_id} if project_id in {None, key.project_id} else set()
        project_id, api_key_id = key.project_id, key.id
    if named.provider_key_id is not None:
        provider_key_id = _provider_key(scope, named.provider_key_id)
    key_ids = None
    if named.team_id is not None:
        team = _team(scope, named.team_id)
        key_ids = _keys_of(team, project_id, api_key_id)
        organizations &= {team.organization_id} if key_ids else set()
    since = {identifier: moment for identifier, moment in scope.since.items() if identifier in organizations}
    return LogScope(since, project_id, api_key_id, provider_key_id, key_ids, scope.reader)


def _keys_of(team: Team, project_id: UUID | None, api_key_id: UUID | None) -> frozenset[UUID]:
    """Return the ids of a team's keys, also deleted ones; of one project or one key if set."""
    keys = ApiKey.objects.filter(is_of_teams([team.id]), project__organization=team.organization_id)
    narrowed = {"project": project_id, "pk": api_key_id}
    keys = keys.filter(**{name: value for name, value in narrowed.items() if value is not None})
    return frozenset(keys.values_list("pk", flat=True))


def _team(scope: LogScope, text: str) -> Team:
    team = Team.objects.filter(id__in=_ids(text), organization__in=scope.since).first()
    if team is None or scope.reader is None:
        raise Forbidden("You may not see the logs of this team")
    return access_team(scope.reader, team.organization_id, team.id).team


def _organization(scope: LogScope, text: str) -> UUID:
    identifier = find_id(text)
    if identifier is None or identifier not in scope.since:
        raise Forbidden("You may not see the logs of this organization")
    return identifier


def _project(scope: LogScope, text: str) -> Project:
    project = Project.objects.filter(id__in=_ids(text), organization__in=scope.since).first()
    if project is None or scope.project_id not in {None, project.id}:
        raise Forbidden("You may not see the logs of this project")
    return project


def _api_key(scope: LogScope, text: str) -> ApiKey:
    keys = ApiKey.objects.select_related("project")
    key = keys.filter(id__in=_ids(text), project__organization__in=scope.since).first()
    if key is None or scope.project_id not in {None, key.project_id}:
        raise Forbidden("You may not see the logs of this API key")
    return key


def _provider_key(scope: LogScope, text: str) -> UUID:
    key = ProviderKey.objects.filter(id__in=_ids(text), organization__in=scope.since).first()
    if key is None:
        raise Forbidden("You may not see the logs of this provider key")
    return key.id


def _ids(text: str) -> list[UUID]:
    """Return a caller's id in a list, empty if it is none."""
    identifier = find_id(text)
    return [] if identifier is None else [identifier]


def access_activity(
    user: User,
    *,
    organization_id: str | None,
    project_id: str | None,
    api_key_id: str | None,
    team_id: str | None = None,
) -> ActivityScope:
    """Return the user's organizations limited to the named ids; activity of deleted keys is included.

    Raises NotFound for unknown ids, Forbidden for those of other organizations.
    """
    organizations, project, key = set(roles_of(user)), None, None
    if organization_id is not None:
        organizations &= {access_organization(user, organization_id).organization.id}
    if project_id is not None:
        named = access_project(user, project_id).project
        organizations &= {named.organization_id}
        project = named.id
    if api_key_id is not None:
        row = find_row(ApiKey.objects.select_related("project"), api_key_id, NO_KEY)
        organizations &= {access_organization(user, row.project.organization_id).organization.id}
        if project not in {None, row.project_id}:
            # If the key belongs to a project other than the named one, nothing matches.
            organizations.clear()
        project, key = row.project_id, row.id
    key_ids = None
    if team_id is not None:
        living = Team.objects.exclude(organization__status=DELETED)
        team = access_team(user, find_row(living, team_id, NO_TEAM).organization_id, team_id).team
        key_ids = _keys_of(team, project, key)
        organizations &= {team.organization_id} if key_ids else set()
    return ActivityScope(frozenset(organizations), project, key, key_ids)
