"""Guardrails in the Django admin: configurations and rules can be changed and tried, violations can be read.

`trial.py` computes what the rules would do with a text that is tried; nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.guardrails import actions
from apps.guardrails.admin_forms import (
    MEMBERS,
    SHOWN_WHEN,
    CustomRuleForm,
    GuardrailConfigForm,
    config_form,
    rule_fields,
)
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.guardrails.trial import TrialResult, try_guardrails
from apps.kernel.errors import ApiError
from apps.kernel.pages.admin import KeptAdmin, LongTableAdmin
from apps.organizations.operators.admin_buttons import ButtonsAdmin, address_of_row, page_button, page_context
from apps.organizations.operators.audited_admin import ActingAdmin
from apps.organizations.operators.organization_tabs import OrganizationLink, link_by_id

# Characters of a text that is tried, as over the API.
MAX_TRIED_LENGTH = 100_000


class TrialForm(forms.Form):
    """A text."""

    text = forms.CharField(
        max_length=MAX_TRIED_LENGTH,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8}),
        help_text="As a user would send it. It is neither sent nor kept.",
    )


@page_button("Test a text", permission="guardrails.view_customrule", icon="experiment")
def try_text(page: Any, request: HttpRequest, row: Any) -> HttpResponse:
    """Say what the guardrails of a row's organization would do with a text."""
    form = TrialForm(request.POST if request.method == "POST" else None)
    result = None
    if request.method == "POST" and form.is_valid():
        try:
            result = try_guardrails(row.organization_id, form.cleaned_data["text"])
        except ApiError as error:
            form.add_error(None, error.message)
    context = {
        "title": "Test a text",
        "form": form,
        "result": result,
        "table": None if result is None else _table(result, str(row.pk)),
        "back": address_of_row(page, row),
    }
    return TemplateResponse(request, "admin/guardrails/try_text.html", page_context(page, request, row) | context)


def _table(result: TrialResult, rule_id: str) -> dict[str, Any]:
    rows = [
        (
            f"{one.rule_name} (this rule)" if one.rule_id == rule_id else one.rule_name,
            one.category,
            f"{one.action} (observes only)" if one.observed else one.action,
            one.matched_content,
            one.matched_pattern,
        )
        for one in result.findings
    ]
    return {
        "caption": "Findings",
        "headers": ("Rule", "Category", "Action", "Match", "By"),
        "rows": rows,
        "empty": "No rule found anything.",
    }


_SYSTEM_RULES = (
    "Enabled: texts are scanned for it. Action: block refuses the request, neutralize cuts the match out and "
    "tells the model so, redact masks it, warn notes it, allow lets it pass. Only observe: findings are recorded, and "
    "no action is taken. Restore in answers: masked values come back in answers and tool calls."
)
# How a custom rule acts.
_ACTING = ("action", "restore", "priority", "enabled", "observe_only")


@admin.register(GuardrailConfig)
class GuardrailConfigAdmin(OrganizationLink, ButtonsAdmin, KeptAdmin, ActingAdmin):
    """The guardrails of an organization, on a plan that has them."""

    thing = "guardrail_config"
    form = GuardrailConfigForm
    actions_detail = ("try_text",)
    try_text = try_text
    list_display = ("organization_link", "enabled", "pii_action", "scan_output", "updated_at")
    list_display_links = ("enabled",)
    list_filter = ("enabled", "scan_output")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "organization__name")
    autocomplete_fields = ("organization",)
    sortable_by = ()
    ordering = ("-id",)
    readonly_fields = ("id", "created_at", "updated_at")
    help_texts = {
        "organization": "Whose requests are looked at; cannot be changed later.",
        "enabled": "Off: no text is looked at, whatever the rules say.",
        "max_file_size_mb": "Megabytes of a file, 0.01 to 1000; larger ones are refused.",
        "pii_action": "Action on personal data; empty: the rule's own action below.",
        "scan_output": "Answers of models are scanned too.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the read-only fields: the organization, once it exists."""
        return (*self.readonly_fields, "organization") if obj else self.readonly_fields

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Put a line for each system rule after what holds for all."""
        own = ("organization", "enabled", "scan_output", "pii_action", "max_file_size_mb", "allowed_file_types")
        return (
            (None, {"fields": own}),
            ("System rules", {"fields": rule_fields(), "description": _SYSTEM_RULES}),
            ("Record", {"fields": self.readonly_fields}),
        )

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form with the fields of the system rules."""
        return super().get_form(request, obj, change, **{"form": config_form(), **kwargs})

    def changes_of(self, form: Any) -> dict[str, Any]:
        """Return the columns that a form changes, and the changed choices of the system rules."""
        changed = form.changed_rules()
        return {**super().changes_of(form), **({"system_rules": changed} if changed else {})}

    def create_row(self, row: GuardrailConfig, fields: Mapping[str, Any]) -> GuardrailConfig:
        """Make the configuration of an organization."""
        rules: dict[str, dict[str, Any]] = {}
        for names in rule_fields():
            rule = names[0].removesuffix("_enabled")
            rules[rule] = {name.removeprefix(f"{rule}_"): fields[name] for name in names}
        own = ("enabled", "scan_output", "pii_action", "max_file_size_mb", "allowed_file_types")
        given = {name: fields[name] for name in own}
        return actions.change_config(organization=fields["organization"], changes={**given, "system_rules": rules})

    def change_row(self, row: GuardrailConfig, changes: Mapping[str, Any]) -> None:
        """Set columns of a configuration."""
        actions.change_config(organization=row.organization, changes=changes)


@admin.register(CustomRule)
class CustomRuleAdmin(OrganizationLink, ButtonsAdmin, ActingAdmin):
    """Rules that organizations wrote for themselves."""

    thing = "guardrail_rule"
    form = CustomRuleForm
    actions_detail = ("try_text",)
    try_text = try_text
    list_display = ("name", "organization_link", "type", "action", "priority", "enabled", "observe_only")
    list_filter = ("type", "action", "enabled", "observe_only")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    autocomplete_fields = ("organization",)
    sortable_by = ()
    ordering = ("-id",)
    readonly_fields = ("id", "created_at", "updated_at")
    conditional_fields = SHOWN_WHEN
    help_texts = {
        "type": "The kind of content; cannot be changed later.",
        "match_type": "How terms are compared with the text.",
        "organization": "The organization whose requests it scans; cannot be changed later.",
        "priority": "Rules with a higher number are looked at first.",
        "enabled": "A rule that is off is kept and not looked at.",
        "action": "Block refuses the request, neutralize cuts the match out and tells the model so, redact masks it, "
        "warn notes it, allow lets it pass.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the read-only fields: organization and type, once it exists."""
        return (*self.readonly_fields, "organization", "type") if obj else self.readonly_fields

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show what the rule's type has; for a new rule what the type that is chosen has."""
        types = MEMBERS if obj is None else {obj.type: MEMBERS.get(obj.type, {})}
        looked_for = [field for members in types.values() for field in members.values()]
        return (
            (None, {"fields": ("organization", "name", "type", *_ACTING)}),
            ("Content to find", {"fields": looked_for}),
            ("Record", {"fields": self.readonly_fields}),
        )

    def changes_of(self, form: Any) -> dict[str, Any]:
        """Return the columns that a form changes, what the rule looks for in one."""
        config = form.cleaned_data["config"]
        return {**super().changes_of(form), **({} if config == form.instance.config else {"config": config})}

    def create_row(self, row: CustomRule, fields: Mapping[str, Any]) -> CustomRule:
        """Add a rule to an organization."""
        columns = ("organization", "name", "type", "config", "priority", "enabled", "observe_only", "action", "restore")
        return actions.create_rule(**{name: fields[name] for name in columns})

    def change_row(self, row: CustomRule, changes: Mapping[str, Any]) -> None:
        """Set columns of a rule."""
        actions.change_rule(rule=row, changes=changes)

    def delete_row(self, row: CustomRule) -> None:
        """Remove a rule."""
        actions.delete_rule(rule=row)


@admin.register(Violation)
class ViolationAdmin(LongTableAdmin):
    """Findings of rules; the content itself stays with the organization."""

    list_display = ("created_at", "rule_name", "category", "action_taken", "model", "organization_link")
    list_filter = ("action_taken",)
    fields = (
        *("created_at", "action_taken", "rule_name", "category", "rule_id", "model"),
        *("organization_id", "log_id", "api_key_id", "content_hash", "id"),
    )
    readonly_fields = ("created_at", "id")
    owners = ("organization_id",)
    help_texts = {
        "rule_name": "As the rule was called then.",
        "category": "The kind of content that the rule finds.",
        "model": "The requested model.",
        "log_id": "The id of the request in the request log.",
        "action_taken": "Observed: the rule would have acted, and only observes.",
        "rule_id": "A custom rule's id, or system:NAME.",
        "content_hash": "Tells equal content apart from other content, without showing it.",
    }

    @admin.display(description="Organization")
    def organization_link(self, row: Violation) -> str:
        """Return a link to the organization, whose name would be a query a row."""
        return link_by_id("organizations_organization", row.organization_id)
