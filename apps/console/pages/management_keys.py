"""Management keys of an organization: list, create, rotate, revoke; a token is shown once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form, read_proof
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy
from apps.organizations.accounts import step_up
from apps.organizations.credentials import management_keys as actions
from apps.organizations.credentials import two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.management_keys import CreatedManagementKey
from apps.organizations.models import ManagementScope, Role
from apps.organizations.views import NewManagementKeyShape, find_key

SCOPES: Final = {
    ManagementScope.READ: gettext_lazy("Read projects, members, keys, settings and usage"),
    ManagementScope.KEYS: gettext_lazy("Create, change and revoke API keys, access rules and provider keys"),
    ManagementScope.LIMITS: gettext_lazy("Change limits, also those of API keys"),
    ManagementScope.SETTINGS: gettext_lazy("Change projects, guardrails, log sinks, MCP servers and the organization"),
    ManagementScope.MEMBERS: gettext_lazy("Invite, change and remove members, up to the role admin"),
    ManagementScope.BILLING: gettext_lazy("Read transactions and cards"),
    ManagementScope.LOGS: gettext_lazy("Read logs, guardrail findings and the audit log"),
}


@workspace_page("GET", "POST", needs=Role.ADMIN)
def management_keys(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the keys, and run the submitted form."""
    form, name = Form(), request.POST.get("action", "")
    if request.method == "POST" and name == "revoke":
        done, form = attempt(request, lambda: _revoke(request, workspace))
        if done is not None:
            messages.success(request, done)
            return lead_to("management_keys", workspace.organization.id)
    elif request.method == "POST":
        made, form = attempt(request, lambda: do_once(request, workspace.user, lambda: _make(request, workspace, name)))
        if made is not None:
            return show(
                request, "management_key_made", workspace, entry="management_keys", base_url=settings.PUBLIC_URL, **made
            )
    picked = set(request.POST.getlist("scopes"))
    context: dict[str, Any] = {
        "form": form,
        "keys": [(one, actions.masked(one)) for one in actions.living(workspace.organization)],
        "scopes": [(scope, words, scope in picked) for scope, words in SCOPES.items()],
        "ask_for_proof": not step_up.is_recent(workspace.session),
        "visitor": workspace.user,
        "second_factor_on": two_factor.is_on(workspace.user),
    }
    return show(request, "management_keys", workspace, entry="management_keys", status=form.status, **context)


def _make(request: HttpRequest, workspace: Workspace, name: str) -> dict[str, Any]:
    """Create or rotate a key; return what its page shows. Raises InvalidRequest, and the errors of the action."""
    make = _MADE.get(name)
    if make is None:
        raise InvalidRequest("There is no such action here")
    if not step_up.is_recent(workspace.session):
        step_up.require(Holder(workspace.user, str(workspace.session.pk)), read_proof(request))
    made = make(request, workspace)
    return {"name": made.key.name, "token": made.token, "rotated": name == "rotate"}


def _create(request: HttpRequest, workspace: Workspace) -> CreatedManagementKey:
    proof = ("password", "code", "passkey")
    fields = read_form(request, NewManagementKeyShape, leave_out=proof, scopes=request.POST.getlist("scopes"))
    return actions.create_management_key(user=workspace.user, organization=workspace.organization, **fields)


def _rotate(request: HttpRequest, workspace: Workspace) -> CreatedManagementKey:
    key = find_key(workspace.organization, request.POST.get("key", ""))
    return actions.rotate_management_key(key=key, user=workspace.user)


def _revoke(request: HttpRequest, workspace: Workspace) -> str:
    key = find_key(workspace.organization, request.POST.get("key", ""))
    actions.revoke_management_key(key=key)
    return gettext("The management key “{name}” was revoked.").format(name=key.name)


_MADE: Final[dict[str, Callable[[HttpRequest, Workspace], CreatedManagementKey]]] = {
    "create": _create,
    "rotate": _rotate,
}
PATHS = [path("o/<str:organization_id>/management-keys", management_keys, name="management_keys")]
