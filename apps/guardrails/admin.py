"""Guardrails in the Django admin: configurations and rules can be changed, violations can be read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from apps.guardrails.configuration.config_validation import (
    LARGEST_FILE,
    SMALLEST_FILE,
    find_file_type_issues,
    find_rule_issues,
    merge_system_rules,
    normalize_file_types,
)
from apps.guardrails.configuration.custom_rule_validation import validate_config
from apps.guardrails.custom import MAX_RULES
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.guardrails.rule_thread import loaded_rules
from apps.kernel.admin import LongTableAdmin
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.audited_admin import AuditedAdmin

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm


class GuardrailConfigForm(_Form):
    """A configuration, held to what the API takes."""

    def clean_max_file_size_mb(self) -> Decimal:
        """Return the size in megabytes. Raises ValidationError."""
        given: Decimal = self.cleaned_data["max_file_size_mb"]
        if not SMALLEST_FILE <= given <= LARGEST_FILE:
            raise forms.ValidationError(f"Must be a number from {SMALLEST_FILE} to {LARGEST_FILE}")
        return given

    def clean_system_rules(self) -> dict[str, dict[str, Any]]:
        """Return the rules; those that are not named have their defaults. Raises ValidationError."""
        given = self.cleaned_data["system_rules"]
        _refuse(find_rule_issues(given, loaded_rules(), ""))
        return merge_system_rules({}, given)

    def clean_allowed_file_types(self) -> list[str]:
        """Return the types as they are compared. Raises ValidationError."""
        given = self.cleaned_data["allowed_file_types"]
        _refuse(find_file_type_issues(given, ""))
        return normalize_file_types(given)


class CustomRuleForm(_Form):
    """A rule, held to what the API takes."""

    def clean(self) -> dict[str, Any]:
        """Hold the configuration to the rule's type, and their number to what is looked at. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        rule_type = cleaned.get("type", self.instance.type)
        if rule_type and "config" in cleaned:
            cleaned["config"] = self._config(rule_type, cleaned["config"])
        organization = cleaned.get("organization")
        if organization and CustomRule.objects.filter(organization=organization).count() >= MAX_RULES:
            raise forms.ValidationError(f"Maximum {MAX_RULES} guardrail rules per organization")
        return cleaned

    def _config(self, rule_type: str, given: Any) -> Any:
        try:
            if not isinstance(given, dict):
                raise InvalidFields([Issue("config", "Must be an object")])
            return validate_config(rule_type, given)
        except InvalidFields as error:
            self.add_error("config", [f"{issue.path}: {issue.message}" for issue in error.issues])
            return given


@admin.register(GuardrailConfig)
class GuardrailConfigAdmin(AuditedAdmin):
    """What is in force in an organization."""

    thing = "guardrail_config"
    form = GuardrailConfigForm
    list_display = ("organization", "enabled", "pii_action", "scan_output", "updated_at")
    list_filter = ("enabled", "scan_output")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
    readonly_fields = ("id", "created_at", "updated_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Return what is nobody's to change: whose it is, once it is there."""
        return (*self.readonly_fields, "organization") if obj else self.readonly_fields


@admin.register(CustomRule)
class CustomRuleAdmin(AuditedAdmin):
    """Rules that organizations wrote for themselves."""

    thing = "guardrail_rule"
    form = CustomRuleForm
    list_display = ("name", "organization", "type", "action", "priority", "enabled", "observe_only")
    list_filter = ("type", "action", "enabled", "observe_only")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
    readonly_fields = ("id", "created_at", "updated_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Return what is for good once it is there: whose it is, and its type."""
        return (*self.readonly_fields, "organization", "type") if obj else self.readonly_fields


@admin.register(Violation)
class ViolationAdmin(LongTableAdmin):
    """What rules found; the content itself stays with the organization."""

    list_display = ("created_at", "rule_name", "category", "action_taken", "model", "organization_id")
    list_filter = ("action_taken",)
    exclude = ("matched_content", "matched_pattern")
    owners = ("organization_id",)


def _refuse(issues: list[Issue]) -> None:
    if issues:
        raise forms.ValidationError([f"{issue.path.strip('.')}: {issue.message}".lstrip(": ") for issue in issues])
