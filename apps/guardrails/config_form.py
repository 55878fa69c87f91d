"""The form of an organization's guardrails in the admin: fields for each system rule, instead of JSON.

`config_validation.py` validates the configuration.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.forms.models import ModelFormMetaclass
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldBooleanWidget

from apps.guardrails.configuration.config_validation import (
    LARGEST_FILE,
    MAX_TYPES,
    SMALLEST_FILE,
    find_file_type_issues,
    normalize_file_types,
)
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.models import Action, GuardrailConfig
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.kernel.pages.admin import LinesField

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

# Settings of a system rule.
_PARTS = ("enabled", "action", "observe", "restore")


def rule_fields() -> list[tuple[str, ...]]:
    """Return the names of each system rule's fields: enabled, action, observe, restore."""
    return [tuple(f"{name}_{part}" for part in _PARTS) for name in loaded_rules()]


class GuardrailConfigForm(_Form):
    """A configuration, held to what the API takes."""

    allowed_file_types = LinesField(
        required=False,
        help_text=f"MIME types such as image/png; one a line, at most {MAX_TYPES}. Empty: no file passes.",
    )

    class Meta:
        model = GuardrailConfig
        fields = ("organization", "enabled", "max_file_size_mb", "pii_action", "scan_output")
        labels = {"pii_action": "Action on personal data", "max_file_size_mb": "Largest file (MB)"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.setdefault("allowed_file_types", self.instance.allowed_file_types)
        for name, state in system_rule_states(self.instance).items():
            for part in _PARTS:
                self.initial.setdefault(f"{name}_{part}", state.get(part, part == "restore"))

    def clean_max_file_size_mb(self) -> Decimal:
        """Return the size in megabytes. Raises ValidationError."""
        given: Decimal = self.cleaned_data["max_file_size_mb"]
        if not SMALLEST_FILE <= given <= LARGEST_FILE:
            raise forms.ValidationError(f"Must be a number from {SMALLEST_FILE} to {LARGEST_FILE}")
        return given

    def clean_allowed_file_types(self) -> list[str]:
        """Return the types as they are compared. Raises ValidationError."""
        given = self.cleaned_data["allowed_file_types"]
        if issues := find_file_type_issues(given, ""):
            raise forms.ValidationError([f"{issue.path}: {issue.message}".lstrip(": ") for issue in issues])
        return normalize_file_types(given)

    def changed_rules(self) -> dict[str, dict[str, Any]]:
        """Return the changed settings of each system rule."""
        changed: dict[str, dict[str, Any]] = {}
        for name in loaded_rules():
            for part in _PARTS:
                if f"{name}_{part}" in self.changed_data:
                    changed.setdefault(name, {})[part] = self.cleaned_data[f"{name}_{part}"]
        return changed


@cache
def config_form() -> type[GuardrailConfigForm]:
    """Return the form with the fields of each system rule. Not at import: loading the rules takes most of a second."""
    fields: dict[str, Any] = {"__module__": __name__}
    for name, rule in loaded_rules().items():
        fields[f"{name}_enabled"] = forms.BooleanField(
            required=False,
            label=f"{rule.name}: enabled",
            widget=UnfoldBooleanWidget,
        )
        fields[f"{name}_action"] = forms.ChoiceField(
            choices=Action.choices,
            label=f"{rule.name}: action",
            widget=UnfoldAdminSelectWidget,
            help_text="The action on personal data above has the last word." if name == PII_RULE else "",
        )
        fields[f"{name}_observe"] = forms.BooleanField(
            required=False,
            label=f"{rule.name}: only observe",
            widget=UnfoldBooleanWidget,
        )
        fields[f"{name}_restore"] = forms.BooleanField(
            required=False,
            initial=True,
            label=f"{rule.name}: restore in answers",
            widget=UnfoldBooleanWidget,
        )
    return cast(type[GuardrailConfigForm], ModelFormMetaclass("RulesForm", (GuardrailConfigForm,), fields))
