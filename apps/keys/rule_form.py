"""The form of an access rule in the admin: fields for the values of each type, instead of JSON.

`rule_values.py` validates the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget

from apps.kernel.money import plain
from apps.kernel.pages.admin import LinesField, PlainDecimalField
from apps.keys.iam import MCP_FIELD, MCP_SUBJECT
from apps.keys.models import IamRule
from apps.keys.rule_values import MAX_IDS, issues_of

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

# The form's field for each member of `ruleValue`, and the members for each subject.
FIELDS = {
    "models": "models",
    "providers": "providers",
    MCP_FIELD: "mcp_servers",
    "pricingType": "pricing_type",
    "maxInputPrice": "max_input_price",
    "maxOutputPrice": "max_output_price",
}
_MEMBERS = {
    "models": ("models",),
    "providers": ("providers",),
    MCP_SUBJECT: (MCP_FIELD,),
    "pricing": ("pricingType", "maxInputPrice", "maxOutputPrice"),
}
# Which fields are shown for which type: expressions of the admin's script.
SHOWN_WHEN = {
    FIELDS[member]: f"rule_type == 'allow_{subject}' || rule_type == 'deny_{subject}'"
    for subject, members in _MEMBERS.items()
    for member in members
}


def _price(what: str) -> PlainDecimalField:
    return PlainDecimalField(
        required=False,
        label=f"Dearest {what} price",
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="Maximum in USD per million tokens. Empty: any price.",
    )


class IamRuleForm(_Form):
    """A rule, validated as in the API."""

    models = LinesField(
        required=False,
        help_text=f"Model ids of the catalog, such as gpt-5; one per line, at most {MAX_IDS}.",
    )
    providers = LinesField(required=False, help_text=f"Provider ids, such as openai; one per line, at most {MAX_IDS}.")
    mcp_servers = LinesField(
        required=False,
        label="MCP servers",
        help_text="MCP servers by name, such as tickets, or tools of them, such as tickets/search; "
        f"all means every server; one per line, at most {MAX_IDS}.",
    )
    pricing_type = forms.ChoiceField(
        required=False,
        choices=[("free", "Free models"), ("paid", "Paid models")],
        widget=UnfoldAdminSelectWidget,
        label="Price class",
    )
    max_input_price = _price("input")
    max_output_price = _price("output")

    class Meta:
        model = IamRule
        fields = ("api_key", "rule_type", "status")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        value = kwargs["instance"].rule_value if kwargs.get("instance") else {}
        stated = {FIELDS[name]: one for name, one in value.items() if name in FIELDS}
        kwargs["initial"] = {**stated, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)

    def clean(self) -> dict[str, Any]:
        """Build the value and validate it for the rule's type. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        subject = str(cleaned.get("rule_type", "")).partition("_")[2]
        value = {}
        for member in _MEMBERS.get(subject, ()):
            given = cleaned.get(FIELDS[member])
            if given not in (None, "") and FIELDS[member] not in self.errors:
                value[member] = given if isinstance(given, str | list) else plain(given)
        if subject and not self.errors:
            for issue in issues_of(cleaned["rule_type"], value):
                member = issue.path.removeprefix("ruleValue.").partition("[")[0]
                self.add_error(FIELDS[member], issue.message)
        cleaned["rule_value"] = value
        return cleaned
