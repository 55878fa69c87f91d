"""Service accounts: list, create, change, delete."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.pages.projects import team_choices
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.organizations.models import DELETED, Role
from apps.organizations.teams import actions
from apps.organizations.teams.access import access_service_account, access_service_accounts
from apps.organizations.teams.serializers import NewServiceAccountShape, ServiceAccountChangesShape


@workspace_page("GET", "POST", needs=Role.ADMIN)
def service_accounts(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the service accounts, and run the submitted form."""
    form, name = Form(), request.POST.get("action", "")
    if request.method == "POST":
        done, form = attempt(request, lambda: _act(request, workspace, name))
        if done is not None:
            messages.success(request, done)
            return lead_to("service_accounts", workspace.organization.id)
    living = Count("account__api_keys", filter=~Q(account__api_keys__status=DELETED))
    rows = access_service_accounts(workspace.user, workspace.organization.id).annotate(key_count=living)
    context: dict[str, Any] = {
        "form": form if name == "create" else Form(problem=_problem_of(form)),
        "accounts": rows,
        "teams": team_choices(workspace),
    }
    return show(request, "service_accounts", workspace, entry="service_accounts", status=form.status, **context)


def _problem_of(form: Form) -> str:
    """Return the faults of a form in a row of the table, which has no place for them, as one text."""
    return "; ".join(filter(None, (form.problem, *form.errors.values())))


def _act(request: HttpRequest, workspace: Workspace, name: str) -> str:
    """Run the submitted action and return its message. Raises InvalidRequest and the errors of the action."""
    organization = workspace.organization
    if name == "create":

        def create() -> dict[str, Any]:
            fields = read_form(request, NewServiceAccountShape)
            return {"name": actions.create_service_account(organization=organization, **fields).name}

        made = do_once(request, workspace.user, create)
        return gettext("The service account “{name}” was created. Create an API key that belongs to it next.").format(
            name=made["name"]
        )
    if name not in ("change", "delete"):
        raise InvalidRequest("There is no such action here")
    account = access_service_account(workspace.user, organization.id, request.POST.get("id", ""))
    if name == "change":
        changes = read_form(request, ServiceAccountChangesShape, never_empty=("name",))
        return gettext("{name} was changed.").format(
            name=actions.change_service_account(account=account, changes=changes).name
        )
    revoked = actions.delete_service_account(account=account)
    return gettext("{account} was deleted; {revoked} of its keys revoked.").format(
        account=account.name, revoked=revoked
    )


PATHS = [path("o/<str:organization_id>/service-accounts", service_accounts, name="service_accounts")]
