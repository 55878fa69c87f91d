"""`/auth`, `/organization`, `/projects`, management keys and audit logs: parse, act or query, present."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.errors import Forbidden
from apps.kernel.ids import find_id
from apps.kernel.money import plain
from apps.kernel.postgres.rows import find_row
from apps.kernel.rest.endpoint import Endpoint, PaginationShape, described, message_field
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.pages import Page, page_of
from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    ChoiceField,
    DecimalTextField,
    FutureMoment,
    NameField,
    Nothing,
)
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
from apps.organizations.accounts.account_serializers import (
    DeletionShape,
    ProofShape,
    SignInWithPasskeyShape,
    answered,
    proof,
)
from apps.organizations.accounts.account_views import holder_of
from apps.organizations.credentials import management_keys
from apps.organizations.credentials.management_keys import NO_KEY, CreatedManagementKey
from apps.organizations.credentials.sessions import MemberEndpoint, extend, start_session
from apps.organizations.models import AuditEntry, ManagementKey, ManagementScope, Organization, Project, Role, User
from apps.organizations.plans import limits_of
from apps.organizations.serializers import (
    AuditEntryShape,
    AuditQuery,
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


class AuditLogs(MemberEndpoint):
    """`GET /audit-logs/{orgId}`."""

    @described(
        {"auditLogs": AuditEntryShape(many=True), "pagination": PaginationShape()}, query=AuditQuery, refuses=(403, 404)
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's audit log, newest first, one page at a time."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        if not limits_of(organization.plan).audit_logs:
            raise Forbidden("Audit logs require an enterprise plan")
        page = find_entries(organization, self.read_query(AuditQuery))
        return Response({"auditLogs": AuditEntryShape(page.rows, many=True).data, "pagination": page.pagination})


def find_entries(organization: Organization, query: Mapping[str, Any]) -> Page[AuditEntry]:
    """Return the page of an organization's entries that a query asks for, newest first."""
    rows = AuditEntry.objects.filter(_wanted(query), organization_id=organization.id).order_by("-id")
    return page_of(list(rows[: query["limit"] + 1]), query["limit"], lambda row: row.id)


def _wanted(query: Mapping[str, Any]) -> Q:
    """Return what a query asks entries to be like. An actor is an id or an e-mail address. Raises InvalidFields."""
    columns = {
        "action": "action",
        "resource_type": "resource_type",
        "resource_id": "resource_id",
        "start_date": "created_at__gte",
        "end_date": "created_at__lte",
    }
    wanted = Q(**{column: query[name] for name, column in columns.items() if name in query})
    if actor := query.get("actor"):
        identifier = find_id(actor)
        wanted &= Q(actor_id=identifier) if identifier else Q(actor_email=actor.lower())
    if cursor := query.get("cursor"):
        wanted &= Q(id__lt=cursor)
    return wanted


class NewManagementKeyShape(ProofShape):
    """Body of `POST …/management-keys`; a session that is older than ten minutes needs proof of identity too."""

    name = NameField(max_length=100)
    scopes = serializers.ListField(
        child=ChoiceField(ManagementScope.choices), allow_empty=False, max_length=len(ManagementScope)
    )
    expires_at = FutureMoment(required=False, allow_null=True)


class ManagementKeyShape(CamelModelSerializer):
    """A management key without its token."""

    masked_token = serializers.SerializerMethodField("mask")
    created_by = serializers.SerializerMethodField("maker")
    works = serializers.SerializerMethodField("is_working", help_text="Whether its maker still is an admin or owner")

    def mask(self, key: ManagementKey) -> str:
        """Its first and last characters."""
        return management_keys.masked(key)

    def maker(self, key: ManagementKey) -> str | None:
        """The e-mail address of the member who made or last rotated it; null when that account is gone."""
        return key.created_by.email if key.created_by else None

    def is_working(self, key: ManagementKey) -> bool:
        """Whether its maker still is an admin or owner; one that was just made works."""
        return bool(getattr(key, "works", True))

    class Meta:
        model = ManagementKey
        fields = read_only_fields = [
            "id",
            "name",
            "masked_token",
            "scopes",
            "works",
            "created_by",
            "expires_at",
            "last_used_at",
            "created_at",
        ]


class NewTokenShape(ManagementKeyShape):
    """A management key with its token, which no other answer has."""

    token = serializers.CharField()

    class Meta(ManagementKeyShape.Meta):
        fields = read_only_fields = [*ManagementKeyShape.Meta.fields, "token"]


class ManagementKeys(MemberEndpoint):
    """`GET /organization/{orgId}/management-keys`, `POST /organization/{orgId}/management-keys`."""

    @described({"managementKeys": ManagementKeyShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's management keys, oldest first."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        rows = management_keys.living(organization)
        return Response({"managementKeys": ManagementKeyShape(rows, many=True).data})

    @described({"managementKey": NewTokenShape()}, body=NewManagementKeyShape, refuses=(401, 403, 404, 429))
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a management key; only this answer contains its token.

        A session that is older than ten minutes needs the `password` (with a `code` where a second factor is on) or a
        `passkey`.
        """
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        fields = self.read(NewManagementKeyShape)
        given: dict[str, Any] = {name: fields.pop(name) for name in ("password", "code", "passkey") if name in fields}
        step_up.require_recent(holder_of(self), request.auth, proof(given))
        created = management_keys.create_management_key(user=self.user, organization=organization, **fields)
        return Response({"managementKey": _shape_of_new(created)})


class OneManagementKey(MemberEndpoint):
    """`DELETE /organization/{orgId}/management-keys/{id}`."""

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Revoke a management key; it stops working, and what it made stays."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        management_keys.revoke_management_key(key=find_key(organization, key_id))
        return Response({"message": "Management key revoked"})


class RotateManagementKey(MemberEndpoint):
    """`POST /organization/{orgId}/management-keys/{id}/rotate`."""

    @described({"managementKey": NewTokenShape()}, body=ProofShape, refuses=(401, 403, 404, 429))
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Give a management key a new token, which depends on your role from now on; the old token stops working."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        step_up.require_recent(holder_of(self), request.auth, proof(self.read(ProofShape)))
        rotated = management_keys.rotate_management_key(key=find_key(organization, key_id), user=self.user)
        return Response({"managementKey": _shape_of_new(rotated)})


def find_key(organization: Organization, identifier: str) -> ManagementKey:
    """Return a key of the organization that is not revoked. Raises NotFound."""
    return find_row(management_keys.living(organization), identifier, NO_KEY)


def _shape_of_new(created: CreatedManagementKey) -> dict[str, Any]:
    return {**ManagementKeyShape(created.key).data, "token": created.token}
