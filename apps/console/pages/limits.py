"""Limits of an organization: list with bars, create, change, raise for a time, delete."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.keys.models import ApiKey
from apps.limits import actions
from apps.limits.access import NO_LIMIT, access_limit, limits_of
from apps.limits.models import Limit
from apps.limits.serializers import LimitChangesShape, NewLimitShape
from apps.limits.state import states_of
from apps.organizations.access import people_of
from apps.organizations.models import DELETED, Role
from apps.organizations.teams.access import accounts_of

COUNTS: Final = (
    (Limit.Counts.USD, "USD"),
    (Limit.Counts.REQUESTS, "Requests"),
    (Limit.Counts.TOKENS, "Tokens, input and output"),
    (Limit.Counts.INPUT_TOKENS, "Input tokens"),
    (Limit.Counts.OUTPUT_TOKENS, "Output tokens"),
)
WINDOWS: Final = (
    (Limit.Window.MONTH, "Month"),
    (Limit.Window.WEEK, "Week, from Monday"),
    (Limit.Window.DAY, "Day"),
    (Limit.Window.HOUR, "Hour"),
    (Limit.Window.MINUTE, "Minute"),
    (Limit.Window.LIFETIME, "All time: it never resets"),
)
ACTIONS: Final = ((Limit.Action.REFUSE, "Refuse the request"), (Limit.Action.WARN, "Let it in, with a warning"))
# Keys to choose from, the newest first.
MAX_KEYS: Final = 200
# The fields that a form sends together: `key:<id>`.
_OWNER: Final = "owner"


@workspace_page("GET", "POST", needs=Role.ADMIN)
def limits(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the limits with their state, and create one."""
    form = Form()
    if request.method == "POST":
        created, form = attempt(request, lambda: do_once(request, workspace.user, lambda: _create(request, workspace)))
        if created is not None:
            messages.success(request, f"The limit “{created['name']}” was created. It counts from now on.")
            return back_to("limits", workspace)
    rows = limits_of(workspace.organization).select_related("team", "project", "member", "api_key")
    context: dict[str, Any] = {
        "form": form,
        "limits": [(limit, owner_of(limit), state) for limit, state in states_of(rows).items()],
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
        "actions": ACTIONS,
    }
    return show(request, "limit", workspace, entry="limits", status=form.status, **context)


def owner_of(limit: Limit) -> str:
    """Return whose requests count, in words."""
    match limit.scope:
        case Limit.Scope.TEAM if limit.team is not None:
            return f"Team {limit.team.name}"
        case Limit.Scope.PROJECT if limit.project is not None:
            return f"Project {limit.project.name}"
        case Limit.Scope.MEMBER if limit.member is not None:
            return f"Member {limit.member.email}"
        case Limit.Scope.KEY if limit.api_key is not None:
            return f"Key {limit.api_key}"
        case Limit.Scope.END_USER if limit.project is not None:
            each = f"End user {limit.end_user}" if limit.end_user else "Each end user"
            return f"{each} of {limit.project.name}"
    return "The organization"


def _create(request: HttpRequest, workspace: Workspace) -> dict[str, Any]:
    """Create a limit; return its name. Raises the errors of the action."""
    scope, _, scope_id = request.POST.get(_OWNER, "").partition(":")
    given: dict[str, Any] = {"scope": scope, "organizationId": str(workspace.organization.id)}
    if scope_id:
        given["scopeId"] = scope_id
    fields = read_form(request, NewLimitShape, **given)
    return {"name": actions.create_limit(organization=workspace.organization, fields=fields).name}


def _act(request: HttpRequest, limit: Limit) -> str:
    """Run the submitted action and return its message. Raises InvalidRequest and the errors of the action."""
    match request.POST.get("action_name"):
        case "change":
            changes = read_form(request, LimitChangesShape, never_empty=("name", "amount"))
            actions.change_limit(limit=limit, changes=changes)
            return "Saved. It holds for the next request."
        case "delete":
            actions.delete_limit(limit=limit)
            return f"The limit “{limit.name}” was deleted."
    raise InvalidRequest("There is no such action here")


def _owners(workspace: Workspace) -> list[tuple[str, str]]:
    """Return the choices of whose requests count: values and words."""
    organization = workspace.organization
    people = people_of(organization).select_related("user").order_by("user__email")
    keys = ApiKey.objects.exclude(status=DELETED).filter(project__organization=organization).order_by("-id")
    return [
        (Limit.Scope.ORGANIZATION, "The organization"),
        *((f"team:{one.id}", f"Team {one.name}") for one in workspace.teams),
        *((f"project:{one.id}", f"Project {one.name}") for one in workspace.projects),
        *((f"end_user:{one.id}", f"Each end user of {one.name}") for one in workspace.projects),
        *((f"member:{one.user_id}", f"Member {one.user.email}") for one in people),
        *((f"member:{one.account_id}", f"Service account {one.name}") for one in accounts_of(organization)),
        *((f"key:{one.id}", f"Key {one}") for one in keys[:MAX_KEYS]),
        (Limit.Scope.PROVIDER, "One provider: routing leaves it out beyond the limit"),
    ]


PATHS = [
    path("o/<str:organization_id>/limits", limits, name="limits"),
    path("o/<str:organization_id>/limits/<str:limit_id>", one_limit, name="limit"),
]
