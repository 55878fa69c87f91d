"""API keys, access rules and provider credentials in the admin; with their forms and buttons.

Rotating a key shows its new secret once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Field, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget

from apps.kernel.money import plain
from apps.kernel.pages.admin import LinesField, MadeElsewhereAdmin, PlainDecimalField
from apps.kernel.postgres import database
from apps.keys import actions, provider_keys
from apps.keys.access import PROVIDER_KEYS
from apps.keys.iam import MAX_IDS, MCP_FIELD, MCP_SUBJECT, issues_of
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.origins import MAX_ORIGINS, WRITTEN_AS, is_origin
from apps.keys.secrets import quoted_key
from apps.organizations.integrations.integration_admin import IntegrationAdmin, delete_button
from apps.organizations.journal import audit
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button, is_living
from apps.organizations.operators.audited_admin import ActingAdmin
from apps.organizations.operators.organization_tabs import link_to

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
        help_text=f"Model ids of the catalog, such as gpt-5.5; one per line, at most {MAX_IDS}.",
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


class RevokeQuestion(ButtonQuestion):
    """Asks whether to revoke a key."""

    text = (
        "Requests with {row.masked_token} ({row.description}) are refused from now on. This cannot be undone: to pause "
        "a key, set it to inactive instead. Its log and costs stay."
    )


class RotateQuestion(ButtonQuestion):
    """Asks whether to give a key a new secret."""

    text = (
        "{row.masked_token} ({row.description}) gets a new secret, which the next page shows once. The old one "
        "stops working. Limits, usage and access rules stay."
    )


class CheckQuestion(ButtonQuestion):
    """Asks whether to test a credential at its provider."""

    text = "Requests the list of models from {row} with the credential {row.masked_token}. Nothing is charged."


@button(
    "Rotate",
    permission="keys.change_apikey",
    icon="autorenew",
    danger=True,
    question=RotateQuestion,
    offered=is_living,
)
def rotate(page: Any, key: ApiKey, fields: Mapping[str, Any]) -> Done:
    """Give a key a new secret, and show it once."""
    created = actions.rotate_api_key(key=key)
    return Done(f"{key.description} has a new secret now.", secret=created.token)


@button(
    "Revoke", permission="keys.delete_apikey", icon="block", danger=True, question=RevokeQuestion, offered=is_living
)
def revoke(page: Any, key: ApiKey, fields: Mapping[str, Any]) -> Done:
    """Revoke a key permanently."""
    actions.delete_api_key(key=key)
    return Done(f"{key} was revoked")


def _ask_provider(key: ProviderKey, done: Done) -> Done:
    """Test the credential at its provider and show a refusal."""
    database.release_connection()
    provider_keys.recheck_provider_key(key=key)
    return done


@button(
    "Test",
    permission="keys.change_providerkey",
    icon="network_check",
    question=CheckQuestion,
    offered=is_living,
    finish=_ask_provider,
)
def check_credential(page: Any, key: ProviderKey, fields: Mapping[str, Any]) -> Done:
    """Record the test; `_ask_provider` runs it."""
    audit.record("provider_key.test", organization_id=key.organization_id, resource=key)
    return Done(f"{key} accepts the credential, or did not refuse it")


# The API's minimums of limits; see `serializers.py`.
_LEAST = {"usage_limit": 0, "period_limit": 0, "requests_per_minute": 1}


class ApiKeyForm(_Form):
    """Limits of a key, validated as in the API."""

    allowed_origins = LinesField(
        required=False,
        help_text=f"Web pages that may use the key in a browser, such as https://app.example.com; one per line, "
        f"at most {MAX_ORIGINS}. Empty: the deployment's allowed origins.",
    )

    def clean_allowed_origins(self) -> list[str]:
        """Return the origins in lower case. Raises ValidationError."""
        given = [one.lower() for one in self.cleaned_data["allowed_origins"]]
        if len(given) > MAX_ORIGINS:
            raise forms.ValidationError(f"Must be at most {MAX_ORIGINS} origins")
        if wrong := [one for one in given if not is_origin(one)]:
            raise forms.ValidationError(f"{wrong[0]}: {WRITTEN_AS}")
        return given

    def clean_expires_at(self) -> Any:
        """Return the moment. Raises ValidationError for a changed one in the past."""
        given = self.cleaned_data["expires_at"]
        if given is not None and "expires_at" in self.changed_data and given <= timezone.now():
            raise forms.ValidationError("Must be in the future")
        return given

    def clean(self) -> dict[str, Any]:
        """Require both amount and period of a periodic limit, or neither. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if (cleaned.get("period_limit") is None) != (not cleaned.get("period")) and "period_limit" not in self.errors:
            self.add_error("period_limit", "A periodic limit needs both an amount and a period, or neither")
        return cleaned


@admin.register(ApiKey)
class ApiKeyAdmin(ButtonsAdmin, MadeElsewhereAdmin, ActingAdmin):
    """API keys."""

    thing = "api_key"
    form = ApiKeyForm
    actions_detail = ("rotate", "revoke")
    rotate, revoke = rotate, revoke
    list_display = (
        *("masked_token", "description", "organization", "project_link", "creator", "status"),
        *("usage", "usage_limit", "created_at"),
    )
    list_filter = ("status",)
    list_select_related = ("project__organization", "created_by")
    search_fields = ("id__exact", "last_four__exact", "description", "project__name", "created_by__email")
    search_help_text = (
        "A masked key or its last four characters; part of a description, a project's name or an address; or an exact "
        "id"
    )
    sortable_by = ()
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("masked_token", "description", "status", "organization", "project", "team", "created_by")}),
        ("Spending", {"fields": (("usage", "usage_limit"), ("period_limit", "period"))}),
        ("Limits", {"fields": ("requests_per_minute", "expires_at", "allowed_origins")}),
        ("Record", {"fields": ("id", "created_at", "updated_at")}),
    )
    readonly_fields = (
        *("id", "masked_token", "organization", "project", "team", "created_by", "usage", "created_at", "updated_at"),
    )
    help_texts = {
        "masked_token": "The first characters and the last four; the key itself is not stored.",
        "team": "The team that its requests count for, beside that of its project; empty: none.",
        "created_by": "The owner of the key: a person with whose membership it ends, or a program's account.",
        "status": "Requests with an inactive key are refused. Revoke it permanently with the button above.",
        "usage": "Total USD spent.",
        "usage_limit": "Maximum total spending in USD; empty: no limit but the organization's balance.",
        "period_limit": "Maximum spending in USD per period; empty: no limit.",
        "period": "Period of the limit: calendar hours, days, weeks (from Monday) or months, in UTC.",
        "requests_per_minute": "Limit for this key; empty: the organization's limit.",
        "expires_at": "When it expires (UTC); empty: never.",
    }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ApiKey], search_term: str
    ) -> tuple[QuerySet[ApiKey], bool]:
        """Also find keys pasted whole or masked."""
        quoted = quoted_key(search_term.strip())
        if quoted is not None:
            return queryset.filter(quoted), False
        found: tuple[QuerySet[ApiKey], bool] = super().get_search_results(request, queryset, search_term)
        return found

    @admin.display(description="Organization")
    def organization(self, row: ApiKey) -> str:
        """Return a link to the organization."""
        return link_to(row.project.organization)

    @admin.display(description="Project")
    def project_link(self, row: ApiKey) -> str:
        """Return a link to the project."""
        return link_to(row.project)

    @admin.display(description="Made by")
    def creator(self, row: ApiKey) -> str:
        """Return a link to the creator."""
        return link_to(row.created_by)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Apply the API's bounds to amounts and rates."""
        if db_field.name in _LEAST:
            kwargs["min_value"] = _LEAST[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the filters that an organization's page links to."""
        return lookup == "project__organization__id__exact" or super().lookup_allowed(lookup, value, request)

    def change_row(self, row: ApiKey, changes: Mapping[str, Any]) -> None:
        """Set columns of a key."""
        actions.change_api_key(key=row, changes=changes)


@admin.register(IamRule)
class IamRuleAdmin(ActingAdmin):
    """Access rules of API keys."""

    thing = "iam_rule"
    form = IamRuleForm
    list_display = ("rule_type", "names", "api_key", "organization", "status", "created_at")
    list_filter = ("rule_type", "status")
    list_select_related = ("api_key__project__organization",)
    search_fields = ("id__exact", "api_key__description")
    autocomplete_fields = ("api_key",)
    sortable_by = ()
    ordering = ("-id",)
    readonly_fields = ("created_at", "updated_at")
    fieldsets = (
        (None, {"fields": ("api_key", "rule_type", "status", *FIELDS.values())}),
        ("Record", {"fields": ("created_at", "updated_at")}),
    )
    conditional_fields = SHOWN_WHEN
    help_texts = {
        "api_key": "The key with the rule; cannot be changed later.",
        "pricing_type": "Free models, paid ones, or all of them.",
        "rule_type": "Deny rules always win. Allow rules of one type add up; those of different types must all agree.",
        "status": "An inactive rule is not applied.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the API key of an existing rule read-only."""
        return (*self.readonly_fields, "api_key") if obj else self.readonly_fields

    @admin.display(description="Organization")
    def organization(self, row: IamRule) -> str:
        """Return a link to the organization."""
        return link_to(row.api_key.project.organization)

    @admin.display(description="Values")
    def names(self, row: IamRule) -> str:
        """Return a rule's values, shortened."""
        values = [", ".join(map(str, one)) if isinstance(one, list) else str(one) for one in row.rule_value.values()]
        return "; ".join(values)[:100]

    def changes_of(self, form: Any) -> dict[str, Any]:
        """Return the columns that the form changes, with the value in one column."""
        value = form.cleaned_data["rule_value"]
        changed = {} if value == form.instance.rule_value else {"rule_value": value}
        return {**super().changes_of(form), **changed}

    def create_row(self, row: IamRule, fields: Mapping[str, Any]) -> IamRule:
        """Add a rule to a key."""
        return actions.create_rule(
            key=fields["api_key"],
            rule_type=fields["rule_type"],
            rule_value=fields["rule_value"],
            status=fields["status"],
        )

    def change_row(self, row: IamRule, changes: Mapping[str, Any]) -> None:
        """Set columns of a rule."""
        actions.change_rule(rule=row, changes=changes)

    def delete_row(self, row: IamRule) -> None:
        """Remove a rule."""
        actions.delete_rule(rule=row)


@admin.register(ProviderKey)
class ProviderKeyAdmin(IntegrationAdmin):
    """Organizations' own credentials at providers."""

    thing = PROVIDER_KEYS.thing
    actions_detail = ("check_credential", "delete_credential")
    check_credential = check_credential
    delete_credential = delete_button(
        PROVIDER_KEYS,
        "delete_credential",
        text="The credential {row.masked_token} at {row} is erased. This cannot be undone.",
        done="The credential at {row} was erased",
    )
    list_display = ("provider", "provider_name", "masked_token", "organization_link", "status", "created_at")
    list_filter = ("status", "provider")
    search_fields = ("id__exact", "provider", "provider_name", "organization__name")
    # The credential is sent to this address, so changing it would reveal the credential.
    readonly_fields = (
        *("id", "organization", "provider", "provider_name", "base_url", "masked_token", "created_at", "updated_at"),
    )
    fields = (*readonly_fields, "status")
    help_texts = {
        "masked_token": "The last characters; the credential itself is stored encrypted and never shown.",
        "provider": "The catalog's id, or custom.",
        "provider_name": "Name of a custom provider, as in custom:NAME/MODEL.",
        "base_url": "Address of a custom provider.",
        "status": "Requests do not use an inactive key. Erase it with the button above.",
    }

    def change_row(self, row: ProviderKey, changes: Mapping[str, Any]) -> None:
        """Switch a credential on or off."""
        provider_keys.change_provider_key(key=row, status=changes["status"])
