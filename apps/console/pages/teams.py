"""Teams: list and create; one team with its members, projects, keys, limits and usage."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form, require_typed
from apps.console.pages.limits import ACTIONS, COUNTS, WINDOWS, rows_of
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.keys.access import access_keys
from apps.keys.models import ApiKey
from apps.limits.access import access_new_limit, limits_of
from apps.limits.actions import create_limit
from apps.limits.models import Limit
from apps.limits.serializers import NewLimitShape
from apps.logs.access import access_activity
from apps.logs.activity import window_of
from apps.logs.usage import UsageSum, find_usage
from apps.organizations.access import access_organization, access_project, people_of
from apps.organizations.actions import change_project
from apps.organizations.models import DELETED, Role, Team
from apps.organizations.teams import actions
from apps.organizations.teams.access import TeamAccess, access_team, access_team_member, teams_of
from apps.organizations.teams.serializers import (
    NewTeamMemberShape,
    NewTeamShape,
    TeamChangesShape,
    TeamMemberChangesShape,
)

# Days of usage on a team's page, and keys on it, the newest first.
USAGE_DAYS: Final = 30
MAX_KEYS: Final = 50
_NO_WHOLE: Final = ("", gettext_lazy("No other team"))


@workspace_page("GET", "POST")
def teams(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the teams that the visitor sees; an admin creates one."""
    form = Form()
    if request.method == "POST":
        made, form = attempt(request, lambda: do_once(request, workspace.user, lambda: _create(request, workspace)))
        if made is not None:
            messages.success(
                request,
                gettext("The team “{name}” was created. Put members and projects into it.").format(name=made["name"]),
            )
            return lead_to("team", workspace.organization.id, team_id=made["id"])
    seen = Team.objects.filter(pk__in=[one.pk for one in workspace.teams]).select_related("parent")
    living = ~Q(projects__status=DELETED)
    rows = seen.annotate(
        member_count=Count("members", distinct=True), project_count=Count("projects", filter=living, distinct=True)
    )
    context: dict[str, Any] = {"form": form, "teams": rows.order_by("name", "id"), "wholes": _wholes(workspace)}
    return show(request, "teams", workspace, entry="teams", status=form.status, **context)


@workspace_page("GET", "POST")
def one_team(request: HttpRequest, workspace: Workspace, team_id: str) -> HttpResponse:
    """Show a team; an admin changes it, and an admin or a lead creates limits of it."""
    access = access_team(workspace.user, workspace.organization.id, team_id)
    form, name = Form(), request.POST.get("action_name", "")
    if request.method == "POST":
        done, form = attempt(request, lambda: _act(request, workspace, access, name))
        if done is not None:
            messages.success(request, done)
            if name == "delete":
                return lead_to("teams", workspace.organization.id)
            return lead_to("team", workspace.organization.id, team_id=access.team.id)
        access.team.refresh_from_db()
    # The fields of a limit have names that other forms of the page have, too.
    is_limit = name == "new-limit"
    forms = {"form": Form(problem=form.problem) if is_limit else form, "limit_form": form if is_limit else Form()}
    context = {"team": access.team, "may_manage": access.may_manage_limits, **forms, **_contents(workspace, access)}
    return show(request, "team", workspace, entry="teams", status=form.status, **context)


def _contents(workspace: Workspace, access: TeamAccess) -> dict[str, Any]:
    """Return what the page of a team shows, and the choices of its forms."""
    team = access.team
    members = list(team.members.select_related("membership__user").order_by("-is_lead", "created_at", "id"))
    inside = {one.membership_id for one in members}
    people = people_of(team.organization).exclude(pk__in=inside).select_related("user").order_by("user__email")
    keys = access_keys(
        workspace.user, project_id=None, everyones=access.may_manage_limits, team_id=str(team.id)
    ).keys.select_related("project", "created_by")
    return {
        "members": members,
        "people": [(one.id, one.user.email) for one in people],
        "projects": team.projects.exclude(status=DELETED).order_by("name", "id"),
        "other_projects": [(one.id, one.name) for one in workspace.projects if one.team_id != team.id],
        "parts": team.parts.order_by("name", "id"),
        "keys": keys.exclude(status=ApiKey.Status.DELETED).reverse()[:MAX_KEYS],
        "limits": rows_of(limits_of(team.organization).filter(team=team)),
        "usage": _usage(workspace, team),
        "usage_days": USAGE_DAYS,
        "wholes": _wholes(workspace, team),
        "counts": COUNTS,
        "windows": WINDOWS,
        "actions": ACTIONS,
    }


def _usage(workspace: Workspace, team: Team) -> UsageSum:
    """Return the usage of a team in the last days, today included."""
    scope = access_activity(
        workspace.user,
        organization_id=str(workspace.organization.id),
        project_id=None,
        api_key_id=None,
        team_id=str(team.id),
    )
    window = window_of(timezone.now(), days=USAGE_DAYS)
    found = replica.read(lambda using: find_usage(scope, window, "model", using=using))
    return UsageSum(
        None,
        team.name,
        sum(one.requests for one in found),
        sum(one.errors for one in found),
        sum(one.input_tokens for one in found),
        sum(one.output_tokens for one in found),
        sum((one.cost for one in found), Decimal(0)),
    )


def _wholes(workspace: Workspace, team: Team | None = None) -> list[tuple[str, str]]:
    """Return the choices of the team that a team is part of."""
    rows = teams_of(workspace.organization).filter(parent=None)
    return [_NO_WHOLE, *((str(one.id), one.name) for one in rows if one != team)]


def _create(request: HttpRequest, workspace: Workspace) -> dict[str, Any]:
    """Create a team; return its id and name. Raises the errors of the action."""
    organization, _ = access_organization(workspace.user, workspace.organization.id, Role.ADMIN)
    team = actions.create_team(organization=organization, **read_form(request, NewTeamShape))
    return {"id": str(team.id), "name": team.name}


def _act(request: HttpRequest, workspace: Workspace, access: TeamAccess, name: str) -> str:
    """Run the submitted action and return its message. Raises InvalidRequest and the errors of the action."""
    if name == "new-limit":
        made = do_once(request, workspace.user, partial(_create_limit, request, workspace, access.team))
        return gettext("The limit “{name}” was created. It counts from now on.").format(name=made["name"])
    action = _ADMINS_ACTIONS.get(name)
    if action is None:
        raise InvalidRequest("There is no such action here")
    team = access_team(workspace.user, workspace.organization.id, access.team.id, Role.ADMIN).team
    return action(request, workspace, team)


def _create_limit(request: HttpRequest, workspace: Workspace, team: Team) -> dict[str, Any]:
    scope, team_id = Limit.Scope.TEAM, str(team.id)
    organization = access_new_limit(workspace.user, str(workspace.organization.id), scope, team_id)
    given: dict[str, Any] = {"scope": scope.value, "scopeId": team_id, "organizationId": str(organization.id)}
    return {"name": create_limit(organization=organization, fields=read_form(request, NewLimitShape, **given)).name}


def _change(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    changes = read_form(request, TeamChangesShape, never_empty=("name",))
    actions.change_team(team=team, changes=changes)
    return gettext("Saved.")


def _delete(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    require_typed(request, "confirmation", team.name)
    actions.delete_team(team=team)
    return gettext("The team “{team}” was deleted.").format(team=team.name)


def _add_member(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    added = actions.add_team_member(team=team, **read_form(request, NewTeamMemberShape))
    return gettext("{user} is in the team.").format(user=added.membership.user.email)


def _change_member(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    member = access_team_member(team, request.POST.get("id", ""))
    changed = actions.change_team_member(member=member, **read_form(request, TeamMemberChangesShape))
    words = gettext("{user} leads the team.") if changed.is_lead else gettext("{user} no longer leads the team.")
    return words.format(user=changed.membership.user.email)


def _remove_member(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    member = access_team_member(team, request.POST.get("id", ""))
    actions.remove_team_member(member=member)
    return gettext("{user} was taken out of the team.").format(user=member.membership.user.email)


def _add_project(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    return _move_project(request, workspace, str(team.id), gettext("{project} is in the team."))


def _remove_project(request: HttpRequest, workspace: Workspace, team: Team) -> str:
    return _move_project(request, workspace, None, gettext("{project} was taken out of the team."))


def _move_project(request: HttpRequest, workspace: Workspace, team_id: str | None, outcome: str) -> str:
    project, _ = access_project(workspace.user, request.POST.get("projectId", ""), Role.ADMIN)
    workspace.require_own(project.organization_id, "Project not found")
    change_project(project=project, changes={"team_id": team_id})
    return outcome.format(project=project.name)


_ADMINS_ACTIONS: Final[dict[str, Callable[[HttpRequest, Workspace, Team], str]]] = {
    "change": _change,
    "delete": _delete,
    "add-member": _add_member,
    "change-member": _change_member,
    "remove-member": _remove_member,
    "add-project": _add_project,
    "remove-project": _remove_project,
}
PATHS = [
    path("o/<str:organization_id>/teams", teams, name="teams"),
    path("o/<str:organization_id>/teams/<str:team_id>", one_team, name="team"),
]
