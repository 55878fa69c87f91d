"""`/organization/{orgId}/management-keys`: parse, act or query, present; only for people."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.postgres.row_lookup import find_row
from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.serializers import CamelModelSerializer, ChoiceField, FutureMoment, NameField
from apps.organizations.access import access_organization
from apps.organizations.accounts import step_up
from apps.organizations.accounts.account_serializers import ProofShape, proof
from apps.organizations.accounts.sign_in_method_views import holder_of
from apps.organizations.credentials import management_keys
from apps.organizations.credentials.management_keys import NO_KEY, CreatedManagementKey
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import ManagementKey, ManagementScope, Organization, Role


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
