"""Programs that members have signed in: list and revoke."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.oauth import actions
from apps.oauth.access import NO_CONSENT, access_consent, access_consents
from apps.oauth.resources import resource_of


@workspace_page("GET", "POST")
def programs(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the programs that the visitor signed in, or everyone's for admins; revoke one."""
    form = Form()
    if request.method == "POST":
        done, form = attempt(request, lambda: _revoke(request, workspace))
        if done is not None:
            messages.success(request, done)
            return lead_to("programs", workspace.organization.id)
    rows = access_consents(workspace.user, workspace.organization.id)
    context = {"form": form, "programs": rows, "resource": resource_of("/mcp")}
    return show(request, "programs", workspace, entry="programs", status=form.status, **context)


def _revoke(request: HttpRequest, workspace: Workspace) -> str:
    """Revoke a consent and return the message. Raises NotFound."""
    consent = access_consent(workspace.user, request.POST.get("program", ""))
    workspace.require_own(consent.project.organization_id, NO_CONSENT)
    actions.revoke_consent(consent=consent)
    return f"{consent.client} was signed out, and its API key was revoked."


PATHS = [path("o/<str:organization_id>/programs", programs, name="programs")]
