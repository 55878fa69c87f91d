"""The form of a custom rule in the admin: fields for what a rule of each type looks for, instead of JSON.

The rule types validate the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from apps.guardrails.configuration.custom_rule_validation import validate_config
from apps.guardrails.custom.blocked_terms import MATCH_TYPES, MAX_TERMS
from apps.guardrails.custom.custom_regex import MAX_PATTERN_LENGTH
from apps.guardrails.custom.topic_restriction import MAX_TOPICS
from apps.guardrails.matching.stemming import LANGUAGES
from apps.guardrails.models import CustomRule
from apps.kernel.pages.admin import LinesField
from apps.kernel.rest.envelopes import InvalidFields

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

# The form's field for each member of a type's `config`.
MEMBERS: dict[str, dict[str, str]] = {
    CustomRule.Type.BLOCKED_TERMS: {
        "terms": "terms",
        "matchType": "match_type",
        "caseSensitive": "case_sensitive",
    },
    CustomRule.Type.CUSTOM_REGEX: {"pattern": "pattern"},
    CustomRule.Type.TOPIC_RESTRICTION: {
        "blockedTopics": "blocked_topics",
        "allowedTopics": "allowed_topics",
        "synonyms": "synonyms",
        "language": "language",
    },
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
