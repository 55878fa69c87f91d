"""The shapes of accounts, organizations and projects on the wire (specification 2.3, 2.4)."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as InvalidPassword
from rest_framework import serializers

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, Text
from apps.organizations.models import Organization, Project, User

# Characters; hashing takes a password of any length, a request does not.
MAX_PASSWORD = 256


class SignUpShape(CamelSerializer):
    """`POST /auth/sign-up/email`."""

    name = Text(max_length=255)
    email = serializers.EmailField(max_length=254)
    password = Text(max_length=MAX_PASSWORD, trim_whitespace=False)
    ref = Text(max_length=100, required=False, allow_null=True, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Hold the password to the rules for passwords. Raises ValidationError."""
        try:
            validate_password(attrs["password"], User(email=attrs["email"], name=attrs["name"]))
        except InvalidPassword as error:
            raise serializers.ValidationError({"password": error.messages}) from error
        return attrs


class SignInShape(CamelSerializer):
    """`POST /auth/sign-in/email`."""

    email = serializers.EmailField(max_length=254)
    password = Text(max_length=MAX_PASSWORD, trim_whitespace=False)


class UserShape(CamelModelSerializer):
    """A user, to themselves."""

    class Meta:
        model = User
        fields = read_only_fields = ["id", "name", "email", "created_at"]


class OrganizationShape(CamelModelSerializer):
    """An organization, to its members."""

    class Meta:
        model = Organization
        fields = read_only_fields = [
            "id",
            "name",
            "billing_email",
            "billing_company",
            "billing_address",
            "billing_tax_id",
            "billing_notes",
            "credits",
            "plan",
            "plan_expires_at",
            "retention_level",
            "status",
            "auto_top_up_enabled",
            "auto_top_up_threshold",
            "auto_top_up_amount",
            "referral_earnings",
            "is_personal",
            "dev_plan",
            "dev_plan_credits_used",
            "dev_plan_credits_limit",
            "dev_plan_billing_cycle_start",
            "dev_plan_expires_at",
            "dev_plan_allow_all_models",
            "created_at",
            "updated_at",
        ]


class ProjectShape(CamelModelSerializer):
    """A project, to the members of its organization."""

    class Meta:
        model = Project
        fields = read_only_fields = [
            "id",
            "name",
            "organization_id",
            "caching_enabled",
            "cache_duration_seconds",
            "mode",
            "status",
            "created_at",
            "updated_at",
        ]
