"""Forms of the admin, instead of JSON: an organization's guardrails, with fields for each system rule; and a custom
rule, with fields for what a rule of each type looks for.

`config_validation.py` and the rule types validate the configurations.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.forms.models import ModelFormMetaclass
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from apps.guardrails.configuration.config_validation import (
    LARGEST_FILE,
    MAX_TYPES,
    SMALLEST_FILE,
    find_file_type_issues,
    normalize_file_types,
    validate_config,
)
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.custom.blocked_terms import MATCH_TYPES, MAX_TERMS
from apps.guardrails.custom.custom_regex import MAX_PATTERN_LENGTH
from apps.guardrails.custom.topic_restriction import MAX_TOPICS
from apps.guardrails.matching.stemming import LANGUAGES
from apps.guardrails.models import Action, CustomRule, GuardrailConfig
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.kernel.pages.admin import LinesField
from apps.kernel.rest.envelopes import InvalidFields, camel

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

# Settings of a system rule.
_PARTS = ("enabled", "action", "observe", "restore")
_FLAGS = {"enabled": "enabled", "observe": "only observe", "restore": "restore in answers"}


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
        fields[f"{name}_action"] = forms.ChoiceField(
            choices=Action.choices,
            label=f"{rule.name}: action",
            widget=UnfoldAdminSelectWidget,
            help_text="The action on personal data above has the last word." if name == PII_RULE else "",
        )
        for part, words in _FLAGS.items():
            fields[f"{name}_{part}"] = forms.BooleanField(
                required=False,
                initial=part == "restore",
                label=f"{rule.name}: {words}",
                widget=UnfoldBooleanWidget,
            )
    return cast(type[GuardrailConfigForm], ModelFormMetaclass("RulesForm", (GuardrailConfigForm,), fields))


# The form's fields for a type's `config`, and by the name of their member in it.
_FIELDS = {
    CustomRule.Type.BLOCKED_TERMS: ("terms", "match_type", "case_sensitive"),
    CustomRule.Type.CUSTOM_REGEX: ("pattern",),
    CustomRule.Type.TOPIC_RESTRICTION: ("blocked_topics", "allowed_topics", "synonyms", "language"),
}
MEMBERS: dict[str, dict[str, str]] = {
    type_: {camel(field): field for field in fields} for type_, fields in _FIELDS.items()
}
# Which fields are shown for which type: expressions of the admin's own script.
# The form of a rule that exists has its own type's fields alone, and no `type` to look at.
SHOWN_WHEN = {
    field: f"$data.type === undefined || type == '{type_}'"
    for type_, members in MEMBERS.items()
    for field in members.values()
}
_MATCHES = {
    "contains": "Contained in the text",
    "exact": "As whole words",
    "regex": "As regular expressions (RE2)",
}


class CustomRuleForm(_Form):
    """A rule, held to what the API takes."""

    terms = LinesField(required=False, help_text=f"One a line, at most {MAX_TERMS:,}.")
    match_type = forms.ChoiceField(
        required=False,
        choices=[(one, _MATCHES[one]) for one in sorted(MATCH_TYPES)],
        widget=UnfoldAdminSelectWidget,
        label="How terms are compared",
    )
    case_sensitive = forms.BooleanField(
        required=False, widget=UnfoldBooleanWidget, help_text="A and a are different letters."
    )
    pattern = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=f"An expression of RE2, such as ticket-[0-9]{{4}}; at most {MAX_PATTERN_LENGTH:,} characters.",
    )
    blocked_topics = LinesField(
        required=False,
        help_text="One a line, alone or with words that mean it, such as gambling: casino, betting. At most "
        f"{MAX_TOPICS}.",
    )
    allowed_topics = LinesField(
        required=False, help_text="One a line; where there are any, texts about anything else are found."
    )
    synonyms = LinesField(
        required=False, help_text="Further words of the topics above, such as gambling: slot machine; one a line."
    )
    language = forms.ChoiceField(
        required=False,
        choices=[(one, one.capitalize()) for one in sorted(LANGUAGES)],
        initial="english",
        widget=UnfoldAdminSelectWidget,
        help_text="The language whose inflections are known: bets and betting are one word.",
    )

    class Meta:
        model = CustomRule
        fields = ("organization", "name", "type", "priority", "enabled", "observe_only", "action", "restore")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        rule = kwargs.get("instance")
        stated = {} if rule is None else _stated(rule)
        kwargs["initial"] = {**stated, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)

    def clean(self) -> dict[str, Any]:
        """Put the configuration together, and hold it to the rule's type. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        type_ = cleaned.get("type") or self.instance.type
        members = MEMBERS.get(type_, {})
        if not members:
            # Organizations configure the services that they ask themselves, because only they know the secrets.
            if self.instance._state.adding:
                self.add_error("type", "Only the organization itself can add a rule of this type")
            return {**cleaned, "config": self.instance.config}
        if set(members.values()) & set(self.errors):
            return cleaned
        config = {member: cleaned[field] for member, field in members.items() if cleaned.get(field) not in (None, "")}
        if "synonyms" in config:
            config["synonyms"] = _read_synonyms(config["synonyms"])
        try:
            cleaned["config"] = validate_config(type_, config)
        except InvalidFields as error:
            for path, message in error.issues:
                member, index = _member_of(path)
                self.add_error(members.get(member), f"{index}{message}")
        return cleaned


def _stated(rule: CustomRule) -> dict[str, Any]:
    """Return what a rule's configuration says, by the form's fields."""
    stated = {field: rule.config.get(member) for member, field in MEMBERS.get(rule.type, {}).items()}
    synonyms = stated.get("synonyms")
    if isinstance(synonyms, dict):
        stated["synonyms"] = [f"{topic}: {', '.join(words)}" for topic, words in synonyms.items()]
    return {field: value for field, value in stated.items() if value is not None}


def _read_synonyms(lines: list[str]) -> dict[str, list[str]]:
    read: dict[str, list[str]] = {}
    for line in lines:
        topic, _, words = line.partition(":")
        read.setdefault(topic.strip(), []).extend(word.strip() for word in words.split(",") if word.strip())
    return read


def _member_of(path: str) -> tuple[str, str]:
    """Return the member that an issue's path names, and its line: `config.terms[3]` is `terms`, "line 4: "."""
    member, _, rest = path.removeprefix("config.").partition("[")
    number = rest.partition("]")[0]
    return member.partition(".")[0], f"line {int(number) + 1}: " if number.isdigit() else ""
