"""Serializers of teams, their members and service accounts: fields and bounds of the management API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.kernel.rest.serializers import BooleanField, CamelModelSerializer, CamelSerializer, NameField, TextField
from apps.organizations.models import ServiceAccount, Team, TeamMember

REQUIRED = "Required"


class NewTeamShape(CamelSerializer):
    """Body of `POST …/teams`."""

    name = NameField(max_length=100)
    parent_id = TextField(
        max_length=100, required=False, allow_null=True, help_text="The team that it is part of; null: of none"
    )


class TeamChangesShape(CamelSerializer):
    """Body of `PATCH …/teams/{teamId}`; fields that are absent keep their values."""

    name = NameField(max_length=100, required=False)
    parent_id = TextField(max_length=100, required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the name if nothing else changes. Raises ValidationError."""
        return _require_change(attrs)


class TeamShape(CamelModelSerializer):
    """A team. `parentId` is the team that it is part of."""

    class Meta:
        model = Team
        fields = read_only_fields = ["id", "organization_id", "name", "parent_id", "created_at", "updated_at"]


class NewTeamMemberShape(CamelSerializer):
    """Body of `POST …/teams/{teamId}/members`."""

    member_id = TextField(max_length=100, help_text="The id of a member of the organization")
    is_lead = BooleanField(required=False)


class TeamMemberChangesShape(CamelSerializer):
    """Body of `PATCH …/teams/{teamId}/members/{id}`."""

    is_lead = BooleanField()


class TeamMemberShape(CamelModelSerializer):
    """A member of a team; `id` is that of the member of the organization."""

    id = serializers.ReadOnlyField(source="membership_id")
    user_id = serializers.ReadOnlyField(source="membership.user_id")
    name = serializers.ReadOnlyField(source="membership.user.name")
    email = serializers.ReadOnlyField(source="membership.user.email")

    class Meta:
        model = TeamMember
        fields = read_only_fields = ["id", "team_id", "user_id", "name", "email", "is_lead", "created_at"]


class NewServiceAccountShape(CamelSerializer):
    """Body of `POST …/service-accounts`."""

    name = NameField(max_length=100)
    team_id = TextField(
        max_length=100, required=False, allow_null=True, help_text="The team whose leads create keys for it"
    )


class ServiceAccountChangesShape(CamelSerializer):
    """Body of `PATCH …/service-accounts/{id}`; fields that are absent keep their values."""

    name = NameField(max_length=100, required=False)
    team_id = TextField(max_length=100, required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the name if nothing else changes. Raises ValidationError."""
        return _require_change(attrs)


class ServiceAccountShape(CamelModelSerializer):
    """A service account. `userId` is what its API keys have as `createdBy`, and limits of a member as `scopeId`."""

    user_id = serializers.ReadOnlyField(source="account_id")

    class Meta:
        model = ServiceAccount
        fields = read_only_fields = [
            "id",
            "organization_id",
            "user_id",
            "name",
            "team_id",
            "created_at",
            "updated_at",
        ]


def _require_change(attrs: dict[str, Any]) -> dict[str, Any]:
    if not attrs:
        raise serializers.ValidationError({"name": [REQUIRED]})
    return attrs
