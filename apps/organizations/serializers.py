"""Serializers of accounts, organizations, members and projects (specification 2.3, 2.4)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as InvalidPassword
from rest_framework import serializers

from apps.kernel.money import plain
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    BooleanField,
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    CursorField,
    DecimalTextField,
    EmailField,
    IntegerField,
    NameField,
    PeriodQuery,
    QueryIntegerField,
    TextField,
)
from apps.organizations.models import (
    AuditEntry,
    Membership,
    Mode,
    Organization,
    OutagePolicy,
    Project,
    RetentionLevel,
    Role,
    User,
)

# Characters; hashing accepts any length, requests do not.
MAX_PASSWORD = 256


class Password(TextField):
    """A new password, checked by `validate_password`."""


class SignUpShape(CamelSerializer):
    """Body of `POST /auth/sign-up/email`."""

    name = NameField(max_length=255)
    email = EmailField(max_length=254)
    password = Password(max_length=MAX_PASSWORD, trim_whitespace=False)
    ref = TextField(max_length=100, required=False, allow_null=True, allow_blank=True)
    invitation = TextField(max_length=500, required=False, allow_null=True, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the password. Raises ValidationError."""
        try:
            validate_password(attrs["password"], User(email=attrs["email"], name=attrs["name"]))
        except InvalidPassword as error:
            raise serializers.ValidationError({"password": error.messages}) from error
        return attrs


class SignInShape(CamelSerializer):
    """Body of `POST /auth/sign-in/email`."""

    email = EmailField(max_length=254)
    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False)
    code = TextField(max_length=32, required=False, allow_null=True, allow_blank=True)


class SessionShape(CamelSerializer):
    """The current session."""

    expires_at = serializers.DateTimeField()


class UserShape(CamelModelSerializer):
    """The user who just signed up or in."""

    class Meta:
        model = User
        fields = read_only_fields = ["id", "name", "email", "created_at"]


class SessionUserShape(CamelModelSerializer):
    """The user of the current session, and whether the address is confirmed."""

    email_verified = serializers.SerializerMethodField("is_verified")

    def is_verified(self, user: User) -> bool:
        """Whether the e-mail address is confirmed."""
        return user.email_verified_at is not None

    class Meta:
        model = User
        fields = read_only_fields = [*UserShape.Meta.fields, "email_verified"]


class OrganizationShape(CamelModelSerializer):
    """An organization, as its members see it."""

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
            "outage_policy",
            "status",
            "deletion_due_at",
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


# USD; the columns hold no more.
MAX_AMOUNT = 10**12


class Amount(DecimalTextField):
    """USD of at least `minimum`, as a number or as a decimal string."""

    def __init__(self, *, minimum: int, **options: Any) -> None:
        super().__init__(**options)
        self.minimum = minimum

    def to_internal_value(self, data: Any) -> Decimal:
        """Return the exact amount. Raises ValidationError."""
        is_number = isinstance(data, int | float) and not isinstance(data, bool)
        amount = super().to_internal_value(
            plain(round(Decimal(str(data)), 12)) if is_number and abs(data) < MAX_AMOUNT else data
        )
        if amount < self.minimum:
            raise serializers.ValidationError(f"Must be at least {self.minimum} USD")
        return amount


class NewOrganizationShape(CamelSerializer):
    """Body of `POST /organization`."""

    name = NameField(max_length=255)


class OrganizationChangesShape(CamelSerializer):
    """Body of `PATCH /organization/{orgId}`; fields that are absent keep their values."""

    name = NameField(max_length=255, required=False)
    billing_email = EmailField(max_length=254, required=False, allow_null=True)
    billing_company = NameField(max_length=255, required=False, allow_null=True, allow_blank=True)
    billing_address = TextField(max_length=2000, required=False, allow_null=True, allow_blank=True)
    billing_tax_id = NameField(max_length=100, required=False, allow_null=True, allow_blank=True)
    retention_level = ChoiceField(RetentionLevel.choices, required=False)
    outage_policy = ChoiceField(OutagePolicy.choices, required=False)
    auto_top_up_enabled = BooleanField(required=False)
    auto_top_up_threshold = Amount(minimum=5, required=False)
    auto_top_up_amount = Amount(minimum=10, required=False)


class NewProjectShape(CamelSerializer):
    """Body of `POST /projects`."""

    name = NameField(max_length=255)
    organization_id = TextField(max_length=100)
    mode = ChoiceField(Mode.choices, required=False)
    caching_enabled = BooleanField(required=False)
    cache_duration_seconds = IntegerField(low=10, high=31_536_000, required=False)
    hedging_enabled = BooleanField(required=False)
    team_id = TextField(
        max_length=100, required=False, allow_null=True, help_text="The team that its requests count for"
    )


class ProjectChangesShape(CamelSerializer):
    """Body of `PATCH /projects/{id}`; fields that are absent keep their values."""

    name = NameField(max_length=255, required=False)
    mode = ChoiceField(Mode.choices, required=False)
    caching_enabled = BooleanField(required=False)
    cache_duration_seconds = IntegerField(low=10, high=31_536_000, required=False)
    hedging_enabled = BooleanField(required=False)
    team_id = TextField(max_length=100, required=False, allow_null=True, help_text="null: no team")
    status = ChoiceField([Project.Status.ACTIVE, Project.Status.ARCHIVED], required=False)


class NewMemberShape(CamelSerializer):
    """Body of `POST /organization/{orgId}/members`."""

    email = EmailField(max_length=254)
    role = ChoiceField(Role.choices)


class MemberChangesShape(CamelSerializer):
    """Body of `PATCH /organization/{orgId}/members/{id}`."""

    role = ChoiceField(Role.choices)


class MemberShape(CamelModelSerializer):
    """A member of an organization."""

    name = serializers.ReadOnlyField(source="user.name")
    email = serializers.ReadOnlyField(source="user.email")

    class Meta:
        model = Membership
        fields = read_only_fields = [
            "id",
            "organization_id",
            "user_id",
            "name",
            "email",
            "role",
            "created_at",
            "updated_at",
        ]


class ProjectShape(CamelModelSerializer):
    """A project, as the members of its organization see it."""

    class Meta:
        model = Project
        fields = read_only_fields = [
            "id",
            "name",
            "organization_id",
            "team_id",
            "caching_enabled",
            "cache_duration_seconds",
            "hedging_enabled",
            "mode",
            "status",
            "created_at",
            "updated_at",
        ]


class ActorShape(CamelSerializer):
    """The user who acted: `type` is the kind of caller; `id` and `email` are null for the gateway itself."""

    type = serializers.ChoiceField(AuditEntry.ActorType.choices, source="actor_type")
    id = serializers.UUIDField(source="actor_id", allow_null=True)
    email = serializers.CharField(source="actor_email", allow_null=True)


class AuditEntryShape(CamelModelSerializer):
    """An entry of the audit log, as the organization's admins see it."""

    actor = ActorShape(source="*")
    details = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = read_only_fields = [
            "id",
            "organization_id",
            "action",
            "actor",
            "resource_type",
            "resource_id",
            "details",
            "ip_address",
            "user_agent",
            "request_id",
            "created_at",
        ]


class AuditQuery(PeriodQuery):
    """The query of `GET /audit-logs/{orgId}`."""

    action = TextField(max_length=64, required=False)
    actor = TextField(max_length=254, required=False)
    resource_type = TextField(max_length=32, required=False)
    resource_id = TextField(max_length=64, required=False)
    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)
