"""Members and invitations: roles, removal, inviting by e-mail."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.organizations import actions, invitations
from apps.organizations.access import access_membership, access_organization, people_of, reaches, require
from apps.organizations.accounts import entrance
from apps.organizations.accounts.account_emails import delivery
from apps.organizations.accounts.account_serializers import NewInvitationShape
from apps.organizations.models import Membership, Role
from apps.organizations.serializers import MemberChangesShape

ROLES: Final = (
    (Role.DEVELOPER, "Developer: creates own keys, sees logs and usage"),
    (Role.ADMIN, "Admin: also all keys, projects, members, provider keys"),
    (Role.OWNER, "Owner: also billing, retention and deletion"),
)


@workspace_page("GET", "POST")
def members(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List members and open invitations, and run the submitted form."""
    form = Form()
    if request.method == "POST":
        done, form = attempt(request, lambda: _act(request, workspace))
        if done is not None:
            messages.success(request, done)
            if done is _LEFT:
                return HttpResponseRedirect(reverse("console:home"))
            return lead_to("members", workspace.organization.id)
    rows = people_of(workspace.organization).select_related("user").order_by("created_at", "id")
    waiting = invitations.waiting(workspace.organization).order_by("created_at", "id")
    context: dict[str, Any] = {
        "form": form,
        "rows": [{"member": row, "may_change": _may_change(workspace, row)} for row in rows],
        "invitations": waiting if workspace.is_admin else [],
        "delivery": delivery(),
        "roles": [(role, words) for role, words in ROLES if reaches(workspace.role, role)],
    }
    return show(request, "members", workspace, entry="members", status=form.status, **context)


_LEFT: Final = "You left the organization."


def _may_change(workspace: Workspace, row: Membership) -> bool:
    return workspace.is_admin and reaches(workspace.role, Role(row.role))


def _act(request: HttpRequest, workspace: Workspace) -> str:
    """Run the action and return its message. Raises InvalidRequest, and the errors of access checks and actions."""
    match request.POST.get("action"):
        case "invite":
            return _invite(request, workspace)
        case "withdraw":
            access_organization(workspace.user, workspace.organization.id, Role.ADMIN)
            found = entrance.find_invitation(workspace.organization, request.POST.get("id", ""))
            invitations.withdraw(organization=workspace.organization, invitation=found)
            return f"The invitation to {found.email} was withdrawn."
        case "change":
            membership, _, role = _member_of(request, workspace)
            require(role, Role.ADMIN)
            wanted = read_form(request, MemberChangesShape)
            require(role, wanted["role"])
            changed = actions.change_member(membership=membership, **wanted)
            return f"{changed.user.email} is now {changed.role}."
        case "remove":
            membership, _, _ = _member_of(request, workspace)
            revoked = actions.remove_member(membership=membership)
            if membership.user_id == workspace.user.id:
                return _LEFT
            return f"{membership.user.email} was removed; {revoked} of their keys revoked."
    raise InvalidRequest("There is no such action here")


def _invite(request: HttpRequest, workspace: Workspace) -> str:
    organization, role = access_organization(workspace.user, workspace.organization.id, Role.ADMIN)

    def invite() -> dict[str, Any]:
        fields = read_form(request, NewInvitationShape)
        entrance.invite_member(by=workspace.user, own_role=role, organization=organization, **fields)
        return {"email": fields["email"]}

    email = do_once(request, workspace.user, invite)["email"]
    return f"An invitation is on its way to {email}." if delivery() == "sent" else f"{email} is invited."


def _member_of(request: HttpRequest, workspace: Workspace) -> Any:
    return access_membership(workspace.user, workspace.organization.id, request.POST.get("id", ""))


PATHS = [
    path("o/<str:organization_id>/members", members, name="members"),
]
