"""Members and invitations: roles, removal, inviting by e-mail; one member with their limits."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.pages.limits import rows_of
from apps.console.rendering import show
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy, translated
from apps.limits.access import limits_of
from apps.organizations import actions, invitations
from apps.organizations.access import (
    access_membership,
    access_organization,
    find_membership,
    people_of,
    reaches,
    require,
)
from apps.organizations.accounts import entrance
from apps.organizations.accounts.account_emails import delivery
from apps.organizations.accounts.account_serializers import NewInvitationShape
from apps.organizations.models import Membership, Role
from apps.organizations.serializers import MemberChangesShape

ROLES: Final = (
    (Role.DEVELOPER, gettext_lazy("Developer: creates own keys, sees logs and usage")),
    (Role.ADMIN, gettext_lazy("Admin: also all keys, projects, members, provider keys")),
    (Role.OWNER, gettext_lazy("Owner: also billing, retention and deletion")),
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
        "rows": [
            {
                "member": row,
                "may_open": workspace.is_admin or row.user_id == workspace.user.id,
                "may_change": _may_change(workspace, row),
            }
            for row in rows
        ],
        "invitations": waiting if workspace.is_admin else [],
        "delivery": delivery(),
        "roles": [(role, words) for role, words in ROLES if reaches(workspace.role, role)],
    }
    return show(request, "members", workspace, entry="members", status=form.status, **context)


@workspace_page()
def one_member(request: HttpRequest, workspace: Workspace, member_id: str) -> HttpResponse:
    """Show a member's role and limits, to admins and to the member."""
    member = find_membership(workspace.user, workspace.organization.id, member_id).membership
    limits = rows_of(limits_of(workspace.organization).filter(member=member.user))
    return show(request, "member", workspace, entry="members", member=member, limits=limits)


_LEFT: Final = gettext_lazy("You left the organization.")


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
            return gettext("The invitation to {name} was withdrawn.").format(name=found.email)
        case "change":
            membership, _, role = _member_of(request, workspace)
            require(role, Role.ADMIN)
            wanted = read_form(request, MemberChangesShape)
            require(role, wanted["role"])
            changed = actions.change_member(membership=membership, **wanted)
            return gettext("{user} is now {role}.").format(user=changed.user.email, role=translated(changed.role))
        case "remove":
            membership, _, _ = _member_of(request, workspace)
            revoked = actions.remove_member(membership=membership)
            if membership.user_id == workspace.user.id:
                return _LEFT
            return gettext("{user} was removed; {revoked} of their keys revoked.").format(
                user=membership.user.email, revoked=revoked
            )
    raise InvalidRequest("There is no such action here")


def _invite(request: HttpRequest, workspace: Workspace) -> str:
    organization, role = access_organization(workspace.user, workspace.organization.id, Role.ADMIN)

    def invite() -> dict[str, Any]:
        fields = read_form(request, NewInvitationShape)
        entrance.invite_member(by=workspace.user, own_role=role, organization=organization, **fields)
        return {"email": fields["email"]}

    email = do_once(request, workspace.user, invite)["email"]
    return (
        gettext("An invitation is on its way to {email}.").format(email=email)
        if delivery() == "sent"
        else gettext("{email} is invited.").format(email=email)
    )


def _member_of(request: HttpRequest, workspace: Workspace) -> Any:
    return access_membership(workspace.user, workspace.organization.id, request.POST.get("id", ""))


PATHS = [
    path("o/<str:organization_id>/members", members, name="members"),
    path("o/<str:organization_id>/members/<str:member_id>", one_member, name="member"),
]
