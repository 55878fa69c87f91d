"""The shapes of API keys and access rules on the wire (specification 2.1, 2.2)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, Money, Text
from apps.keys.actions import CreatedKey
from apps.keys.models import ApiKey, IamRule
from apps.organizations.models import User


class NewKeyShape(CamelSerializer):
    """`POST /keys/api`."""

    description = Text(max_length=255)
    project_id = Text(max_length=100)
    usage_limit = Money(required=False, allow_null=True)


class KeysQuery(CamelSerializer):
    """The query of `GET /keys/api`."""

    project_id = serializers.CharField(required=False)
    filter = serializers.ChoiceField(["mine", "all"], default="mine")


class CreatorShape(CamelModelSerializer):
    """Who created a key."""

    class Meta:
        model = User
        fields = read_only_fields = ["id", "name", "email"]


class IamRuleShape(CamelModelSerializer):
    """An access rule."""

    class Meta:
        model = IamRule
        fields = read_only_fields = [
            "id",
            "api_key_id",
            "rule_type",
            "rule_value",
            "status",
            "created_at",
            "updated_at",
        ]


class ApiKeyShape(CamelModelSerializer):
    """A key as it may be shown."""

    creator = CreatorShape(source="created_by", read_only=True)
    iam_rules = IamRuleShape(many=True, read_only=True)
    created_by = serializers.ReadOnlyField(source="created_by_id")

    class Meta:
        model = ApiKey
        fields = read_only_fields = [
            "id",
            "masked_token",
            "description",
            "status",
            "usage_limit",
            "usage",
            "project_id",
            "created_by",
            "created_at",
            "updated_at",
            "creator",
            "iam_rules",
        ]


def shape_of_new(created: CreatedKey) -> dict[str, Any]:
    """Return a key as it is shown once: with its token, which needs no mask."""
    shown = ApiKeyShape(created.key).data
    return {"token": created.token, **{name: value for name, value in shown.items() if name != "maskedToken"}}
