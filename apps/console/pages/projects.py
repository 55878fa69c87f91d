"""Projects: list, create, change, archive, restore, delete."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form, require_typed
from apps.console.pages.limits import rows_of
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy
from apps.keys.models import ApiKey
from apps.limits.models import Limit
from apps.organizations import actions
from apps.organizations.access import NO_PROJECT, access_project
from apps.organizations.models import Mode, Project, Role, Team
from apps.organizations.plans import limits_of
from apps.organizations.serializers import NewProjectShape, ProjectChangesShape

MODES: Final = (
    (Mode.HYBRID, gettext_lazy("Your own provider keys first, credits for the rest")),
    (Mode.CREDITS, gettext_lazy("Credits alone")),
    (Mode.API_KEYS, gettext_lazy("Only your own provider keys")),
)


@workspace_page()
def projects(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the projects with their number of keys."""
    living = Count("api_keys", filter=~Q(api_keys__status=ApiKey.Status.DELETED))
    rows = workspace.organization.projects.exclude(status=Project.Status.DELETED).annotate(key_count=living)
    most = limits_of(workspace.organization.plan).projects
    context: dict[str, Any] = {"projects": rows.order_by("created_at", "id"), "most": most, "modes": dict(MODES)}
    return show(request, "projects", workspace, entry="projects", **context)


@workspace_page("GET", "POST", needs=Role.ADMIN)
def new_project(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Create a project."""
    form = Form()
    if request.method == "POST":

        def create() -> dict[str, Any]:
            fields = read_form(request, NewProjectShape, organizationId=str(workspace.organization.id))
            fields.pop("organization_id")
            return {"id": str(actions.create_project(organization=workspace.organization, fields=fields).id)}

        made, form = attempt(request, lambda: do_once(request, workspace.user, create))
        if made is not None:
            messages.success(request, gettext("The project was created. Create a key for it next."))
            return lead_to("project", workspace.organization.id, project_id=made["id"])
    context: dict[str, Any] = {"form": form, "modes": MODES, "teams": team_choices(workspace)}
    return show(request, "new_project", workspace, entry="projects", status=form.status, **context)


@workspace_page("GET", "POST")
def one_project(request: HttpRequest, workspace: Workspace, project_id: str) -> HttpResponse:
    """Show a project; an admin changes, archives or restores it, or deletes it by typing its name."""
    needs = Role.ADMIN if request.method == "POST" else Role.DEVELOPER
    project, _ = access_project(workspace.user, project_id, needs)
    workspace.require_own(project.organization_id, NO_PROJECT)
    form = Form()
    if request.method == "POST":
        done, form = attempt(request, lambda: _act(request, project))
        if done is not None:
            messages.success(request, done)
            if request.POST["action"] == "delete":
                return lead_to("projects", workspace.organization.id)
            return lead_to("project", workspace.organization.id, project_id=project.id)
        project.refresh_from_db()
    context: dict[str, Any] = {"form": form, "project": project, "modes": MODES, "teams": team_choices(workspace)}
    context["limits"] = rows_of(Limit.objects.filter(project=project).order_by("name", "id"))
    return show(request, "project", workspace, entry="projects", status=form.status, **context)


def team_choices(workspace: Workspace, current: Team | None = None) -> list[tuple[str, str]]:
    """Return the choices of a team that a project or a key counts for, with the current one; empty without any."""
    teams = [*workspace.teams, *([current] if current and current not in workspace.teams else [])]
    return [("", gettext("No team")), *((str(one.id), one.name) for one in teams)] if teams else []


def _act(request: HttpRequest, project: Project) -> str:
    """Run the submitted action and return its message. Raises InvalidRequest and the errors of the action."""
    match request.POST.get("action"):
        case "change":
            changes = read_form(
                request, ProjectChangesShape, leave_out=("status",), never_empty=("name", "cacheDurationSeconds")
            )
            actions.change_project(project=project, changes=changes)
            return gettext("Saved.")
        case "archive":
            actions.change_project(project=project, changes={"status": Project.Status.ARCHIVED})
            return gettext("The project is archived: requests with its keys are refused until you restore it.")
        case "restore":
            actions.change_project(project=project, changes={"status": Project.Status.ACTIVE})
            return gettext("The project is active again.")
        case "delete":
            require_typed(request, "confirmation", project.name)
            actions.delete_project(project=project)
            return gettext("{project} was deleted.").format(project=project.name)
    raise InvalidRequest("There is no such action here")


PATHS = [
    path("o/<str:organization_id>/projects", projects, name="projects"),
    path("o/<str:organization_id>/projects/new", new_project, name="new_project"),
    path("o/<str:organization_id>/projects/<str:project_id>", one_project, name="project"),
]
