"""Guardrails in the admin: configurations and rules to be changed, violations to be looked at."""

from __future__ import annotations

from django.contrib import admin

from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.kernel.admin import LongTableAdmin, RowAdmin


@admin.register(GuardrailConfig)
class GuardrailConfigAdmin(RowAdmin):
    """What is in force in an organization."""

    list_display = ("organization", "enabled", "pii_action", "scan_output", "updated_at")
    list_filter = ("enabled",)
    list_select_related = ("organization",)
    search_fields = ("organization__name",)
    autocomplete_fields = ("organization",)
    ordering = ("-id",)


@admin.register(CustomRule)
class CustomRuleAdmin(RowAdmin):
    """Rules that organizations wrote for themselves."""

    list_display = ("name", "organization", "type", "action", "priority", "enabled")
    list_filter = ("type", "action", "enabled")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)


@admin.register(Violation)
class ViolationAdmin(LongTableAdmin):
    """What rules found; the content itself stays with the organization."""

    list_display = ("created_at", "rule_name", "category", "action_taken", "model", "organization_id")
    list_filter = ("action_taken",)
    exclude = ("matched_content", "matched_pattern")
    owners = ("organization_id",)
