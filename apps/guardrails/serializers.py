"""Serializers of the guardrails API (specification 2.8 to 2.11, 4.3)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from apps.guardrails.configuration.config_validation import (
    find_file_type_issues,
    merge_system_rules,
    normalize_file_types,
    read_megabytes,
)
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.models import Action, CustomRule, GuardrailConfig, Violation, default_system_rules
from apps.guardrails.stored_violations import CURSOR_PATTERN, ViolationCursor
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    BooleanField,
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    IntegerField,
    NameField,
    PeriodQuery,
    QueryIntegerField,
    TextField,
)

# The column holds larger numbers; no one needs them.
LOWEST_PRIORITY, HIGHEST_PRIORITY = -1_000_000, 1_000_000
# Characters of a text that is tried out.
MAX_CONTENT = 1_000_000
MAX_DAYS = 90


class Megabytes(serializers.Field[Decimal, Any, Any, Any]):
    """A file's size in megabytes, a number."""

    def to_internal_value(self, data: Any) -> Decimal:
        """Return the size. Raises ValidationError."""
        try:
            return read_megabytes(data)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error

    def to_representation(self, value: Decimal) -> int | float:
        """Return the number, whole ones without a point."""
        return int(value) if value == int(value) else float(value)


class FileTypes(serializers.Field[list[str], Any, Any, Any]):
    """A list of MIME types."""

    def to_internal_value(self, data: Any) -> list[str]:
        """Return the types as they are compared. Raises InvalidFields."""
        if issues := find_file_type_issues(data):
            raise InvalidFields(issues)
        return normalize_file_types(data)

    def to_representation(self, value: list[str]) -> list[str]:
        """Return the types."""
        return value


class GuardrailChangesShape(CamelSerializer):
    """Body of `PUT /guardrails/config/{orgId}`: whatever is to be changed, down to a field of one system rule."""

    enabled = BooleanField(required=False)
    system_rules = serializers.DictField(required=False)
    max_file_size_mb = Megabytes(required=False)
    allowed_file_types = FileTypes(required=False)
    pii_action = ChoiceField(Action.choices, required=False, allow_null=True)
    scan_output = BooleanField(required=False)


class GuardrailConfigShape(CamelModelSerializer):
    """A configuration, whole."""

    system_rules = serializers.SerializerMethodField("system_rules_of")
    max_file_size_mb = Megabytes(read_only=True)

    class Meta:
        model = GuardrailConfig
        fields = read_only_fields = [
            "id",
            "organization_id",
            "enabled",
            "system_rules",
            "max_file_size_mb",
            "allowed_file_types",
            "pii_action",
            "scan_output",
            "created_at",
            "updated_at",
        ]

    def system_rules_of(self, row: GuardrailConfig) -> dict[str, dict[str, Any]]:
        """Return every system rule; `observe` where it is so, or would be by default; `restore` where it is off."""
        return merge_system_rules(system_rule_states(row), {}, default_system_rules())


class NewCustomRuleShape(CamelSerializer):
    """Body of `POST /guardrails/rules/{orgId}`."""

    name = NameField(max_length=255)
    type = ChoiceField(CustomRule.Type.choices)
    config = serializers.DictField()
    priority = IntegerField(low=LOWEST_PRIORITY, high=HIGHEST_PRIORITY, required=False)
    enabled = BooleanField(required=False)
    action = ChoiceField(Action.choices, required=False)
    observe = BooleanField(required=False, source="observe_only")
    restore = BooleanField(required=False)


class CustomRuleChangesShape(NewCustomRuleShape):
    """Body of `PATCH /guardrails/rules/{orgId}/{ruleId}`; absent fields keep their values, `type` cannot change."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields of a rule, none of them required."""
        fields = super().get_fields()
        for field in fields.values():
            field.required = False
        return fields


class CustomRuleShape(CamelModelSerializer):
    """A custom guardrail rule of an organization."""

    config = serializers.DictField(read_only=True)
    observe = serializers.BooleanField(source="observe_only", read_only=True)

    class Meta:
        model = CustomRule
        fields = read_only_fields = [
            "id",
            "organization_id",
            "name",
            "type",
            "config",
            "priority",
            "enabled",
            "action",
            "observe",
            "restore",
            "created_at",
            "updated_at",
        ]


class SystemRuleShape(serializers.Serializer[Any]):
    """A built-in guardrail rule."""

    id = serializers.CharField(source="rule_id")
    name = serializers.CharField()
    category = serializers.CharField()
    defaultEnabled = serializers.BooleanField(source="default_enabled")  # noqa: N815 - the name on the wire
    defaultAction = serializers.ChoiceField(Action.choices, source="default_action")  # noqa: N815 - the name on the wire
    defaultRoles = serializers.DictField(  # noqa: N815 - the name on the wire
        source="role_actions", child=serializers.ChoiceField(Action.choices)
    )
    observe = serializers.BooleanField(source="default_observe")


class ViolationCursorField(TextField):
    """Where a page of violations goes on: the `nextCursor` of an earlier answer."""

    pattern = f"^{CURSOR_PATTERN}$"

    def to_internal_value(self, data: Any) -> Any:
        """Return the place. Raises InvalidFields."""
        try:
            return ViolationCursor.read(super().to_internal_value(data))
        except ValueError as error:
            raise InvalidFields([Issue("cursor", "Must be the nextCursor of an earlier answer")]) from error


class ViolationsQuery(PeriodQuery):
    """The query of `GET /guardrails/violations/{orgId}`."""

    action_taken = ChoiceField(Violation.ActionTaken.choices, required=False)
    rule_id = TextField(max_length=60, required=False)
    cursor = ViolationCursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


class StatsQuery(CamelSerializer):
    """The query of `GET /guardrails/stats/{orgId}`: how many times 24 hours to look back."""

    days = QueryIntegerField(low=1, high=MAX_DAYS, default=7)


class ViolationShape(CamelModelSerializer):
    """A guardrail violation, as the organization's admins see it."""

    class Meta:
        model = Violation
        fields = read_only_fields = [
            "id",
            "organization_id",
            "log_id",
            "rule_id",
            "rule_name",
            "category",
            "action_taken",
            "matched_pattern",
            "matched_content",
            "content_hash",
            "api_key_id",
            "model",
            "created_at",
        ]


class ContentField(TextField):
    """A text as it is, white space included."""

    pattern = r"^[^\x00]*$"

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)


class TriedContentShape(CamelSerializer):
    """Body of `POST /guardrails/test/{orgId}`."""

    content = ContentField(max_length=MAX_CONTENT)


class TriedFindingShape(CamelSerializer):
    """A finding of a rule in a tried text."""

    rule_id = serializers.CharField()
    rule_name = serializers.CharField()
    category = serializers.CharField()
    action = serializers.ChoiceField(Action.choices)
    matched_pattern = serializers.CharField()
    matched_content = serializers.CharField()
    observed = serializers.BooleanField()
