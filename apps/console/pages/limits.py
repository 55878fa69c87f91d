"""Limits of an organization: list with bars, create, change, raise for a time, delete."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy
from apps.keys.models import ApiKey
from apps.limits import actions
from apps.limits.access import NO_LIMIT, access_limit, limits_of
from apps.limits.models import Limit
from apps.limits.preview import LimitPreview, preview_limit
from apps.limits.serializers import LimitChangesShape, LimitDraftShape, NewLimitShape
from apps.limits.set_elsewhere import find_limits_elsewhere
from apps.limits.state import LimitState, states_of
from apps.organizations.access import people_of
from apps.organizations.models import DELETED, Role
from apps.organizations.teams.access import accounts_of

COUNTS: Final = (
    (Limit.Counts.USD, "USD"),
    (Limit.Counts.REQUESTS, gettext_lazy("Requests")),
    (Limit.Counts.TOKENS, gettext_lazy("Tokens, input and output")),
    (Limit.Counts.INPUT_TOKENS, gettext_lazy("Input tokens")),
    (Limit.Counts.OUTPUT_TOKENS, gettext_lazy("Output tokens")),
)
WINDOWS: Final = (
    (Limit.Window.MONTH, gettext_lazy("Month")),
    (Limit.Window.WEEK, gettext_lazy("Week, from Monday")),
    (Limit.Window.DAY, gettext_lazy("Day")),
    (Limit.Window.HOUR, gettext_lazy("Hour")),
    (Limit.Window.MINUTE, gettext_lazy("Minute")),
    (Limit.Window.LIFETIME, gettext_lazy("All time: it never resets")),
)
ACTIONS: Final = (
    (Limit.Action.REFUSE, gettext_lazy("Refuse the request")),
    (Limit.Action.WARN, gettext_lazy("Let it in, with a warning")),
    (Limit.Action.REROUTE, gettext_lazy("Answer it with a cheaper model")),
)
# Limits that are set elsewhere: what they are called there, and when they count from 0 again.
_KINDS_ELSEWHERE: Final = {
    "usageLimit": gettext_lazy("Total limit, USD"),
    "periodLimit": gettext_lazy("Limit per period, USD"),
    "requestsPerMinute": gettext_lazy("Requests a minute"),
    "concurrency": gettext_lazy("Requests at once"),
    "planDefault": gettext_lazy("Default of your plan"),
    "planLimit": gettext_lazy("Limit of your plan"),
}
_WINDOWS_ELSEWHERE: Final = {
    "lifetime": gettext_lazy("in all"),
    "month": gettext_lazy("a month"),
    "week": gettext_lazy("a week"),
    "day": gettext_lazy("a day"),
    "hour": gettext_lazy("an hour"),
    "minute": gettext_lazy("a minute"),
    # Translators: Requests at the same time.
    "at once": gettext_lazy("at once"),
}
# Keys to choose from, the newest first.
MAX_KEYS: Final = 200
# The fields that a form sends together: `key:<id>`.
_OWNER: Final = "owner"


@workspace_page("GET", "POST", needs=Role.ADMIN)
def limits(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the limits with their state, create one, and replay the last days under a draft."""
    form, preview = Form(), None
    if request.method == "POST" and "preview" in request.POST:
        preview, form = attempt(request, lambda: _preview(request, workspace))
        form = form if preview is None else Form(request.POST.dict())
    elif request.method == "POST":
        created, form = attempt(request, lambda: do_once(request, workspace.user, lambda: _create(request, workspace)))
        if created is not None:
            messages.success(
                request, gettext("The limit “{name}” was created. It counts from now on.").format(name=created["name"])
            )
            return back_to("limits", workspace)
    context: dict[str, Any] = {
        "form": form,
        "limits": rows_of(limits_of(workspace.organization)),
        "elsewhere": [
            (one, _KINDS_ELSEWHERE[one.kind], f"{_counted(one.counts)} {_WINDOWS_ELSEWHERE[one.window]}")
            for one in find_limits_elsewhere(workspace.organization, timezone.now())
        ],
        "preview": preview,
        "owners": _owners(workspace),
        "counts": COUNTS,
        "windows": WINDOWS,
        "actions": ACTIONS,
    }
    return show(request, "limits", workspace, entry="limits", status=form.status, **context)


@workspace_page("GET", "POST")
def one_limit(request: HttpRequest, workspace: Workspace, limit_id: str) -> HttpResponse:
    """Show a limit; change it, raise it for a time, or delete it. A lead opens those of their teams."""
    limit = access_limit(workspace.user, limit_id)
    workspace.require_own(limit.organization_id, NO_LIMIT)
    form = Form()
    if request.method == "POST":
        done, form = attempt(request, lambda: _act(request, limit))
        if done is not None:
            messages.success(request, done)
            if request.POST["action_name"] == "delete":
                if workspace.is_admin:
                    return back_to("limits", workspace)
                return lead_to("team", workspace.organization.id, team_id=limit.team_id)
            return lead_to("limit", workspace.organization.id, limit_id=limit.id)
    is_raised = limit.raised_until is not None and limit.raised_until > timezone.now()
    context: dict[str, Any] = {
        "form": form,
        "limit": limit,
        "owner": owner_of(limit),
        "state": states_of([limit])[limit],
        "is_raised": is_raised,
        "reroute_models": "\n".join(limit.reroute_models),
        "actions": ACTIONS,
    }
    return show(request, "limit", workspace, entry="limits", status=form.status, **context)


def rows_of(limits: QuerySet[Limit]) -> list[tuple[Limit, str, LimitState | None]]:
    """Return limits with their owners and states, for the table: those with the largest used share first."""
    found = states_of(limits.select_related("team", "project", "member", "api_key"))
    shown = [(limit, owner_of(limit), state) for limit, state in found.items()]
    return sorted(shown, key=lambda row: -1 if row[2] is None else row[2].share, reverse=True)


def owner_of(limit: Limit) -> str:
    """Return whose requests count, in words."""
    match limit.scope:
        case Limit.Scope.TEAM if limit.team is not None:
            return gettext("Team {team}").format(team=limit.team.name)
        case Limit.Scope.PROJECT if limit.project is not None:
            return gettext("Project {project}").format(project=limit.project.name)
        case Limit.Scope.MEMBER if limit.member is not None:
            return gettext("Member {member}").format(member=limit.member.email)
        case Limit.Scope.KEY if limit.api_key is not None:
            return gettext("Key {api_key}").format(api_key=limit.api_key)
        case Limit.Scope.END_USER if limit.project is not None:
            if not limit.end_user:
                return gettext("Each end user of {project}").format(project=limit.project.name)
            return gettext("End user {end_user} of {project}").format(
                end_user=limit.end_user, project=limit.project.name
            )
    return gettext("The organization")


def _counted(counts: str) -> str:
    return str(dict(COUNTS)[Limit.Counts(counts)])


def _create(request: HttpRequest, workspace: Workspace) -> dict[str, Any]:
    """Create a limit; return its name. Raises the errors of the action."""
    fields = read_form(request, NewLimitShape, **_scope_of(request, workspace))
    return {"name": actions.create_limit(organization=workspace.organization, fields=fields).name}


def _preview(request: HttpRequest, workspace: Workspace) -> LimitPreview:
    """Return what the submitted limit would have refused. Raises InvalidFields, InvalidRequest."""
    fields = read_form(request, LimitDraftShape, **_scope_of(request, workspace))
    draft = actions.draft_limit(organization=workspace.organization, fields=fields)
    return preview_limit(draft, timezone.now())


def _scope_of(request: HttpRequest, workspace: Workspace) -> dict[str, Any]:
    """Return the fields with whose requests count."""
    scope, _, scope_id = request.POST.get(_OWNER, "").partition(":")
    given: dict[str, Any] = {"scope": scope, "organizationId": str(workspace.organization.id)}
    return {**given, "scopeId": scope_id} if scope_id else given


def _act(request: HttpRequest, limit: Limit) -> str:
    """Run the submitted action and return its message. Raises InvalidRequest and the errors of the action."""
    match request.POST.get("action_name"):
        case "change":
            unused = () if request.POST.get("action") == Limit.Action.REROUTE else ("rerouteModels",)
            changes = read_form(request, LimitChangesShape, leave_out=unused, never_empty=("name", "amount"))
            actions.change_limit(limit=limit, changes=changes)
            return gettext("Saved. It holds for the next request.")
        case "delete":
            actions.delete_limit(limit=limit)
            return gettext("The limit “{name}” was deleted.").format(name=limit.name)
    raise InvalidRequest("There is no such action here")


def _owners(workspace: Workspace) -> list[tuple[str, str]]:
    """Return the choices of whose requests count: values and words."""
    organization = workspace.organization
    people = people_of(organization).select_related("user").order_by("user__email")
    keys = ApiKey.objects.exclude(status=DELETED).filter(project__organization=organization).order_by("-id")
    return [
        (Limit.Scope.ORGANIZATION, gettext("The organization")),
        *((f"team:{one.id}", gettext("Team {name}").format(name=one.name)) for one in workspace.teams),
        *((f"project:{one.id}", gettext("Project {name}").format(name=one.name)) for one in workspace.projects),
        *(
            (f"end_user:{one.id}", gettext("Each end user of {name}").format(name=one.name))
            for one in workspace.projects
        ),
        *((f"member:{one.user_id}", gettext("Member {user}").format(user=one.user.email)) for one in people),
        *(
            (f"member:{one.account_id}", gettext("Service account {name}").format(name=one.name))
            for one in accounts_of(organization)
        ),
        *((f"key:{one.id}", gettext("Key {name}").format(name=one)) for one in keys[:MAX_KEYS]),
        (Limit.Scope.PROVIDER, gettext("One provider: routing leaves it out beyond the limit")),
    ]


PATHS = [
    path("o/<str:organization_id>/limits", limits, name="limits"),
    path("o/<str:organization_id>/limits/<str:limit_id>", one_limit, name="limit"),
]
