"""`/auth`, `/organization` and `/projects`: parse, act or query, present."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.money import plain
from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.endpoint import Endpoint
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.serializers import DecimalTextField, Nothing
from apps.organizations import actions, deletion
from apps.organizations.access import (
    access_membership,
    access_organization,
    access_project,
    needed_to_change,
    people_of,
    require,
)
from apps.organizations.accounts import entrance, step_up
from apps.organizations.accounts.account_serializers import DeletionShape, SignInWithPasskeyShape, answered, proof
from apps.organizations.accounts.sign_in_method_views import holder_of
from apps.organizations.credentials.sessions import MemberEndpoint, extend, start_session
from apps.organizations.models import Organization, Project, Role, User
from apps.organizations.serializers import (
    MemberChangesShape,
    MemberShape,
    NewMemberShape,
    NewOrganizationShape,
    NewProjectShape,
    OrganizationChangesShape,
    OrganizationShape,
    ProjectChangesShape,
    ProjectShape,
    SessionShape,
    SessionUserShape,
    SignUpShape,
    UserShape,
)

CONFIRM_FIRST = "Open the link that was sent to this address, then sign in"


class SignUp(Endpoint):
    """`POST /auth/sign-up/email`."""

    authentication_classes = []
    permission_classes = []

    @described(
        {
            "token": serializers.CharField(allow_null=True),
            "user": UserShape(allow_null=True),
            "message": serializers.CharField(required=False),
        },
        body=SignUpShape,
        refuses=(409, 429),
    )
    def post(self, request: Request) -> Response:
        """Create an account and sign in; where the address has to be confirmed first, `token` and `user` are null."""
        user = entrance.sign_up(address=address_of(request), **self.read(SignUpShape))
        if user is None:
            return Response({"token": None, "user": None, "message": CONFIRM_FIRST})
        return _signed_in(user)


class SignIn(Endpoint):
    """`POST /auth/sign-in/email`."""

    authentication_classes = []
    permission_classes = []

    @described({"token": serializers.CharField(), "user": UserShape()}, body=SignInWithPasskeyShape, refuses=(401, 429))
    def post(self, request: Request) -> Response:
        """Sign in with e-mail address and password; the answer has a session token."""
        fields = self.read(SignInWithPasskeyShape)
        address, code, passkey = address_of(request), fields.pop("code", None), fields.pop("passkey", None)
        user = entrance.check_password(address=address, **fields)
        answer = answered(passkey) if passkey else None
        entrance.check_second_factor(user, code=code, passkey=answer, address=address)
        return _signed_in(user)


class SignOut(MemberEndpoint):
    """`POST /auth/sign-out`."""

    @described({"message": message_field()}, body=Nothing)
    def post(self, request: Request) -> Response:
        """Sign out: end the current session."""
        self.read(Nothing)
        session: Any = request.auth
        session.delete()
        return Response({"message": "Signed out"})


class GetSession(MemberEndpoint):
    """`GET /auth/get-session`."""

    @described({"session": SessionShape(), "user": SessionUserShape()})
    def get(self, request: Request) -> Response:
        """Show the signed-in user, and when the session ends."""
        return Response({"session": {"expiresAt": extend(request.auth)}, "user": SessionUserShape(self.user).data})


class Organizations(MemberEndpoint):
    """`GET /organization`, `POST /organization`."""

    @described({"organizations": OrganizationShape(many=True)})
    def get(self, request: Request) -> Response:
        """List the organizations that you are a member of, oldest first."""
        rows = Organization.objects.filter(memberships__user=self.user).exclude(status=Organization.Status.DELETED)
        return Response({"organizations": OrganizationShape(rows.order_by("created_at", "id"), many=True).data})

    @described({"organization": OrganizationShape()}, body=NewOrganizationShape, refuses=(403,))
    def post(self, request: Request) -> Response:
        """Create an organization; you become its owner."""
        created = actions.create_further_organization(owner=self.user, **self.read(NewOrganizationShape))
        return Response({"organization": OrganizationShape(created).data})


class OneOrganization(MemberEndpoint):
    """`PATCH /organization/{orgId}`, `DELETE /organization/{orgId}`."""

    @described(
        {"message": message_field(), "organization": OrganizationShape()},
        body=OrganizationChangesShape,
        refuses=(403, 404),
    )
    def patch(self, request: Request, organization_id: str) -> Response:
        """Change the organization's name, billing settings or policies."""
        organization, role = access_organization(self.user, organization_id, Role.ADMIN)
        changes = self.read(OrganizationChangesShape)
        require(role, needed_to_change(changes))
        changed = actions.change_organization(organization=organization, changes=changes)
        return Response({"message": "Organization updated", "organization": OrganizationShape(changed).data})

    @described(
        {"message": message_field(), "deletionDueAt": serializers.DateTimeField()},
        body=DeletionShape,
        refuses=(401, 403, 404, 409, 429),
    )
    def delete(self, request: Request, organization_id: str) -> Response:
        """Delete the organization and everything that belongs to it after seven days; its keys are refused at once.

        Until `deletionDueAt` an owner can cancel it with `POST /organization/{organization_id}/cancel-deletion`. The
        owners receive an e-mail. The session must be at most ten minutes old; an older one needs the `password` (with
        a `code` where a second factor is on) or a `passkey`. `reason` is kept in the operators' journal.
        """
        organization, _ = access_organization(self.user, organization_id, Role.OWNER)
        fields = self.read(DeletionShape)
        step_up.require_recent(holder_of(self), request.auth, proof(fields))
        row = deletion.request_deletion(organization=organization, reason=fields.get("reason", ""))
        return Response({"message": "Organization will be deleted", "deletionDueAt": row.deletion_due_at})


class CancelDeletion(MemberEndpoint):
    """`POST /organization/{orgId}/cancel-deletion`."""

    @described(
        {"message": message_field(), "organization": OrganizationShape()}, body=Nothing, refuses=(401, 403, 404, 409)
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Cancel the deletion of the organization before it is due: its keys work again.

        Automatic top-up stays off, and a subscription stays cancelled.
        """
        organization, _ = access_organization(self.user, organization_id, Role.OWNER)
        self.read(Nothing)
        row = deletion.cancel_deletion(organization=organization)
        return Response({"message": "Deletion cancelled", "organization": OrganizationShape(row).data})


class ReferralStats(MemberEndpoint):
    """`GET /organization/{orgId}/referral-stats`."""

    @described(
        {"referredCount": serializers.IntegerField(min_value=0), "referralEarnings": DecimalTextField()},
        refuses=(403, 404),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """Show how many organizations it has referred, and the referral earnings."""
        organization, _ = access_organization(self.user, organization_id)
        return Response(
            {
                "referredCount": organization.referred.count(),
                "referralEarnings": plain(organization.referral_earnings),
            }
        )


class Members(MemberEndpoint):
    """`GET /organization/{orgId}/members`, `POST /organization/{orgId}/members`."""

    @described({"members": MemberShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the members, in the order in which they joined."""
        organization, _ = access_organization(self.user, organization_id)
        rows = people_of(organization).select_related("user").order_by("created_at", "id")
        return Response({"members": MemberShape(rows, many=True).data})

    @described({"message": message_field(), "member": MemberShape()}, body=NewMemberShape, refuses=(403, 404, 409, 429))
    def post(self, request: Request, organization_id: str) -> Response:
        """Add an existing user as a member."""
        organization, role = access_organization(self.user, organization_id, Role.ADMIN)
        fields = self.read(NewMemberShape)
        added = entrance.add_member(own_role=role, organization=organization, **fields)
        return Response({"message": "Member added", "member": MemberShape(added).data})


class OneMember(MemberEndpoint):
    """`PATCH /organization/{orgId}/members/{id}`, `DELETE /organization/{orgId}/members/{id}`."""

    @described({"message": message_field(), "member": MemberShape()}, body=MemberChangesShape, refuses=(403, 404))
    def patch(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Change a member's role, up to your own."""
        membership, _, role = access_membership(self.user, organization_id, member_id)
        require(role, Role.ADMIN)
        fields = self.read(MemberChangesShape)
        require(role, fields["role"])
        changed = actions.change_member(membership=membership, **fields)
        return Response({"message": "Member updated", "member": MemberShape(changed).data})

    @described(
        {"message": message_field(), "revokedApiKeys": serializers.IntegerField(min_value=0)}, refuses=(400, 403, 404)
    )
    def delete(self, request: Request, organization_id: str, member_id: str) -> Response:
        """Remove a member, or leave; API keys that the member created there stop working."""
        membership, _, _ = access_membership(self.user, organization_id, member_id)
        revoked = actions.remove_member(membership=membership)
        return Response({"message": "Member removed", "revokedApiKeys": revoked})


class OrganizationProjects(MemberEndpoint):
    """`GET /organization/{orgId}/projects`."""

    @described({"projects": ProjectShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's projects, oldest first."""
        organization, _ = access_organization(self.user, organization_id)
        rows = organization.projects.exclude(status=Project.Status.DELETED)
        return Response({"projects": ProjectShape(rows.order_by("created_at", "id"), many=True).data})


class Projects(MemberEndpoint):
    """`POST /projects`."""

    @described({"project": ProjectShape()}, body=NewProjectShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Create a project."""
        fields = self.read(NewProjectShape)
        organization, _ = access_organization(self.user, fields.pop("organization_id"), Role.ADMIN)
        created = actions.create_project(organization=organization, fields=fields)
        return Response({"project": ProjectShape(created).data})


class OneProject(MemberEndpoint):
    """`GET /projects/{id}`, `PATCH /projects/{id}`, `DELETE /projects/{id}`."""

    @described({"project": ProjectShape()}, refuses=(403, 404))
    def get(self, request: Request, project_id: str) -> Response:
        """Show a project."""
        return Response({"project": ProjectShape(access_project(self.user, project_id).project).data})

    @described({"message": message_field(), "project": ProjectShape()}, body=ProjectChangesShape, refuses=(403, 404))
    def patch(self, request: Request, project_id: str) -> Response:
        """Change a project, archive it, or restore it."""
        project, _ = access_project(self.user, project_id, Role.ADMIN)
        changed = actions.change_project(project=project, changes=self.read(ProjectChangesShape))
        return Response({"message": "Project updated", "project": ProjectShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, project_id: str) -> Response:
        """Delete a project."""
        project, _ = access_project(self.user, project_id, Role.ADMIN)
        actions.delete_project(project=project)
        return Response({"message": "Project deleted"})


def _signed_in(user: User) -> Response:
    return Response({"token": start_session(user), "user": UserShape(user).data})
