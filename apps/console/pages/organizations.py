"""Home, the list of organizations, a new organization, and organization settings."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.console.browser_session import BrowserSession, find_browser_session
from apps.console.forms import Form, attempt, do_once, read_form, read_proof, require_typed
from apps.console.rendering import show
from apps.console.visit import LAST_VISITED, back_to, lead_to, public_page, signed_in_page, workspace_page
from apps.console.workspace import Workspace, organizations_of
from apps.kernel.pages.languages import gettext_lazy
from apps.organizations import actions, deletion, invitations
from apps.organizations.access import needed_to_change, require, roles_of
from apps.organizations.accounts import step_up
from apps.organizations.accounts.account_serializers import DeletionShape
from apps.organizations.credentials import two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.models import Organization, OutagePolicy, RetentionLevel, Role
from apps.organizations.plans import limits_of
from apps.organizations.serializers import NewOrganizationShape, OrganizationChangesShape

RETENTION: Final = (
    (RetentionLevel.NONE, gettext_lazy("Billing data only: model, provider, tokens, cost, status and times")),
    (RetentionLevel.METADATA, gettext_lazy("Also parameters, tags, finish reason and attempts")),
    (RetentionLevel.RETAIN, gettext_lazy("Also the conversation: prompts, answers, reasoning and tools")),
)
OUTAGES: Final = (
    (OutagePolicy.OPEN, gettext_lazy("Serve requests within a small allowance, never beyond the last known balance")),
    (OutagePolicy.CLOSED, gettext_lazy("Refuse requests until the counter is back")),
)


@public_page()
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the last visited organization, else the only one, else the list or the form for a new one."""
    visitor = find_browser_session(request)
    if visitor is None:
        return HttpResponseRedirect(reverse("console:sign_in"))
    mine = organizations_of(visitor.user)
    last = request.COOKIES.get(LAST_VISITED, "")
    chosen = mine if len(mine) == 1 else [one for one in mine if str(one.id) == last]
    if chosen:
        return lead_to("overview", chosen[0].id)
    return HttpResponseRedirect(reverse("console:organizations" if mine else "console:new_organization"))


@signed_in_page()
def organizations(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """List the visitor's organizations and open invitations."""
    roles = roles_of(visitor.user)
    rows = [{"organization": one, "role": roles[one.id]} for one in organizations_of(visitor.user)]
    invited = invitations.addressed_to(visitor.user).order_by("created_at", "id")
    return show(request, "organizations", rows=rows, invitations=invited, visitor=visitor.user)


@signed_in_page("GET", "POST")
def new_organization(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Create an organization."""
    form = Form()
    if request.method == "POST":

        def create() -> dict[str, Any]:
            fields = read_form(request, NewOrganizationShape)
            return {"id": str(actions.create_further_organization(owner=visitor.user, **fields).id)}

        done, form = attempt(request, lambda: do_once(request, visitor.user, create))
        if done is not None:
            return lead_to("overview", done["id"])
    invited = invitations.addressed_to(visitor.user).order_by("created_at", "id")
    first = not organizations_of(visitor.user)
    context: dict[str, Any] = {"form": form, "first": first, "invitations": invited, "visitor": visitor.user}
    return show(request, "new_organization", status=form.status, **context)


@workspace_page("GET", "POST", needs=Role.ADMIN)
def organization_settings(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the settings, and change those that the visitor's role allows."""
    form = Form()
    if request.method == "POST":
        changed, form = attempt(request, lambda: _change(request, workspace))
        if changed is not None:
            messages.success(request, gettext("Saved."))
            return lead_to("organization_settings", changed.id)
    context: dict[str, Any] = {
        "form": form,
        "retention_levels": RETENTION,
        "outage_policies": OUTAGES,
        "log_days": limits_of(workspace.organization.plan).log_days,
    }
    return show(
        request, "organization_settings", workspace, entry="organization_settings", status=form.status, **context
    )


@workspace_page("GET", "POST", needs=Role.OWNER)
def delete_organization(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Ask for the organization's name and, unless the visitor signed in recently, their password; then request its
    deletion. While one is waiting, show when it is due, and a button to cancel it."""
    form, recent = Form(), step_up.is_recent(workspace.session)
    if request.method == "POST":

        def delete() -> bool:
            require_typed(request, "name", workspace.organization.name)
            if not recent:
                step_up.require(Holder(workspace.user, str(workspace.session.pk)), read_proof(request))
            reason = read_form(request, DeletionShape, leave_out=("password", "code", "passkey")).get("reason", "")
            deletion.request_deletion(organization=workspace.organization, reason=reason)
            return True

        done, form = attempt(request, delete)
        if done:
            messages.success(
                request, gettext("The deletion was requested. API keys and management keys are refused from now on.")
            )
            return back_to("delete_organization", workspace)
    context: dict[str, Any] = {
        "form": form,
        "ask_for_proof": not recent,
        "visitor": workspace.user,
        "second_factor_on": two_factor.is_on(workspace.user),
        "waiting_days": deletion.WAITING_PERIOD.days,
    }
    return show(request, "delete_organization", workspace, entry="organization_settings", status=form.status, **context)


@workspace_page("POST", needs=Role.OWNER)
def cancel_deletion(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Cancel a waiting deletion."""
    done, form = attempt(request, lambda: deletion.cancel_deletion(organization=workspace.organization))
    if done is None:
        messages.error(request, form.problem)
    else:
        messages.success(request, gettext("The deletion was cancelled. Keys work again; automatic top-up stays off."))
    return back_to("organization_settings", workspace)


def _change(request: HttpRequest, workspace: Workspace) -> Organization:
    changes = read_form(request, OrganizationChangesShape, never_empty=("name",))
    require(workspace.role, needed_to_change(changes))
    return actions.change_organization(organization=workspace.organization, changes=changes)


PATHS = [
    path("", home, name="home"),
    path("organizations", organizations, name="organizations"),
    path("organizations/new", new_organization, name="new_organization"),
    path("o/<str:organization_id>/settings", organization_settings, name="organization_settings"),
    path("o/<str:organization_id>/settings/delete", delete_organization, name="delete_organization"),
    path("o/<str:organization_id>/settings/delete/cancel", cancel_deletion, name="cancel_deletion"),
]
