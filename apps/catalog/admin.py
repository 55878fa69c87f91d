"""The catalog in the admin: data files own the facts, operators own the operations columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from apps.catalog import price_history
from apps.catalog.catalog_buttons import deprecate, reload_files, switches
from apps.catalog.models import CatalogRow, Model, ModelProvider, PriceChange, Provider
from apps.catalog.price_cards import read_card
from apps.catalog.price_form import EFFECTIVE_FIELD, OVERRIDES, MappingForm
from apps.catalog.proposal_admin import ScheduledPriceChangeAdmin
from apps.catalog.proposals import MAX_AGE_DAYS
from apps.kernel.pages.admin import KeptAdmin, LongTableAdmin
from apps.organizations.operators.admin_buttons import ButtonsAdmin

# The admin finds the pages of this module only.
__all__ = [
    *("CatalogProposalAdmin", "ModelAdmin", "ModelProviderAdmin", "PriceListReadingAdmin", "ProviderAdmin"),
    "ScheduledPriceChangeAdmin",
]

# Columns that operators edit on a row of a data file; the file owns the others, or a button changes them.
_OPERATIONS = frozenset({"priority", "price_overrides"})
# Price changes on the page of a mapping.
SHOWN_CHANGES = 50
_PRIORITY = "Weight of the routing score, 0 to 1: 0.8 lowers it by a fifth, 0 excludes it from automatic routing."
_ACTIVE = "Off: requests do not use it. Switch it with the button above."


class CatalogAdmin(ButtonsAdmin, KeptAdmin):
    """Rows of the catalog. Rows of a data file can be switched off but not deleted: the file would bring them back."""

    search_help_text = "Part of an id or a name"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make the facts of a file's row read-only."""
        kept = ["active", "file_owned", "created_at", "updated_at"]
        if not isinstance(obj, CatalogRow) or not obj.file_owned:
            return kept if obj is None else [obj._meta.pk.name, *kept]
        return [*(field.name for field in obj._meta.fields if field.name not in {*_OPERATIONS, *kept}), *kept]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow deleting only rows that operators created."""
        return obj is not None and not obj.file_owned and request.user.is_superuser


@admin.register(Provider)
class ProviderAdmin(CatalogAdmin):
    """Providers."""

    actions_list = ("reload_files",)
    reload_files = reload_files
    actions_detail = ("switch_off", "switch_on")
    switch_off, switch_on = switches("provider")
    list_display = ("id", "name", "state", "dialect", "prices_checked", "priority")
    list_filter = ("active", "dialect")
    sortable_by = ("id", "name", "prices_checked", "priority")
    help_texts = {
        "website": "For information only; requests never go there.",
        "active": _ACTIVE,
        "checked_on": "When a person last compared its data file with the provider's pages.",
        "priority": _PRIORITY,
        "dialect": "Its wire format.",
        "auth": "How a credential is sent: bearer, or the name of its header.",
        "base_url": "Overridden by the environment's <ID>_BASE_URL.",
        "api_key_env": "The environment variable with the gateway's own credential.",
        "facts": "Its differences from other providers of its format.",
        "file_owned": "A data file owns its facts; load_catalog rewrites them.",
    }
    search_fields = ("id", "name")
    ordering = ("id",)

    @admin.display(description="State")
    def state(self, row: Provider) -> str:
        """Return whether requests may use the provider."""
        return _state_of(row.active, None)

    @admin.display(description="Prices checked", ordering="checked_on")
    def prices_checked(self, row: Provider) -> str:
        """Return the day, marked if it is long ago."""
        if row.checked_on is None:
            return "-"
        age = (datetime.now(UTC).date() - row.checked_on).days
        return f"{row.checked_on}{f' (old: {age} days)' if age > MAX_AGE_DAYS else ''}"


@admin.register(Model)
class ModelAdmin(CatalogAdmin):
    """Models."""

    change_form_outer_before_template = "admin/catalog/model_link.html"
    actions_detail = ("deprecate", "switch_off", "switch_on")
    deprecate = deprecate
    switch_off, switch_on = switches("model")
    list_display = ("id", "name", "state", "family", "mode", "context_length", "released_on", "retiring_on")
    list_filter = ("active", "mode")
    sortable_by = ("id", "name", "released_on")
    help_texts = {
        "id": "The name in requests; cannot be changed later.",
        "family": "Groups models of one series, such as gpt-5.",
        "mode": "Its purpose: chat, images, embeddings and so on.",
        "released_on": "Release date; empty: unknown.",
        "input_modalities": "Input types, as a list: text, image, audio, video, file.",
        "output_modalities": "Output types, as a list.",
        "facts": "Other facts of the file, such as tokenizer and knowledge cut-off.",
        "active": _ACTIVE,
        "owned_by": "The maker's provider id; empty if the maker is not a provider.",
        "aliases": "Other names for requests.",
        "context_length": "Maximum tokens of prompt and answer together, as the maker states.",
        "max_output": "Maximum tokens of an answer.",
        "retiring_on": "Deprecated from this day on, set by an operator with the button above.",
        "retired_on": "Not served from this day on, set by an operator.",
        "file_owned": "A data file owns its facts; load_catalog rewrites them.",
    }
    search_fields = ("id", "name", "family")
    ordering = ("id",)

    @admin.display(description="State")
    def state(self, row: Model) -> str:
        """Return whether requests may use the model, and why not."""
        return _state_of(row.active, row.retired_on)


class UnpricedFilter(admin.SimpleListFilter):
    """Whether a price is known: requests without one cost nothing, and their logs say so."""

    title = "price"
    parameter_name = "price"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer both."""
        return [("known", "Known"), ("unpriced", "Unpriced")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the mappings with a price, or those without; the catalog is small enough to read each card."""
        if self.value() is None:
            return queryset
        cards = queryset.select_related(None).only("pk", "prices", "price_overrides")
        unpriced = [row.pk for row in cards if _is_unpriced(row)]
        return queryset.filter(pk__in=unpriced) if self.value() == "unpriced" else queryset.exclude(pk__in=unpriced)


def _is_unpriced(row: ModelProvider) -> bool:
    """Return whether a mapping has no price; one with unreadable prices is not served at all."""
    try:
        return read_card(row.prices | row.price_overrides).unpriced
    except (ValueError, TypeError):
        return False


@admin.register(ModelProvider)
class ModelProviderAdmin(CatalogAdmin):
    """Mappings of models to providers, with prices."""

    form = MappingForm
    actions_detail = ("switch_off", "switch_on")
    switch_off, switch_on = switches("modelprovider")
    change_form_outer_after_template = "admin/catalog/price_history.html"
    list_display = (
        *("mapping", "state", "input_price", "output_price", "price_source", "stability", "deactivated_at"),
        "priority",
    )
    list_filter = ("active", UnpricedFilter, "stability", "provider")
    sortable_by = ("mapping", "priority")
    help_texts = {
        "provider": "The provider that serves the model.",
        "model": "The served model.",
        "context_length": "Maximum tokens of prompt and answer at this provider; empty: the model's.",
        "max_output": "Maximum tokens of an answer at this provider; empty: the model's.",
        "streaming": "The provider can stream its answers.",
        "cancellation": "The provider stops, and stops charging, when the connection ends.",
        "vision": "It accepts images there.",
        "tools": "It calls tools there.",
        "parallel_tools": "It can call several tools in one answer.",
        "tool_choice": "The provider accepts tool_choice.",
        "reasoning": "It reasons before it answers.",
        "structured_outputs": "Answers can follow a JSON schema.",
        "json_output": "Answers can be forced to valid JSON.",
        "web_search": "The provider searches the web for it.",
        "prompt_cache": "The provider caches prompts, and charges less for cached tokens.",
        "temperature": "The provider accepts temperature; off: it is not sent.",
        "active": _ACTIVE,
        "priority": _PRIORITY,
        "model_name": "The provider's name of it.",
        "prices": "USD as in the data file; per million tokens unless a name says otherwise.",
        "stability": "Experimental and unstable models are excluded from automatic routing.",
        "deprecated_at": "Deprecated by the provider from this day on.",
        "deactivated_at": "Not served by the provider from this day on.",
        "facts": "Other facts of the file.",
        "file_owned": "A data file owns its facts; load_catalog rewrites them.",
    }
    list_select_related = ("model", "provider")
    search_fields = ("model__id", "model_name", "provider__id")
    autocomplete_fields = ("model", "provider")
    ordering = ("model_id", "provider_id")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make the facts read-only; the overrides have their own fields."""
        return [name for name in super().get_readonly_fields(request, obj) if name != "price_overrides"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Put the operators' columns first, and the prices after them."""
        names = [field.name for field in ModelProvider._meta.fields if field.name not in {"id", "price_overrides"}]
        first = ("provider", "model", "model_name", "active", "priority")
        return (
            (None, {"fields": first}),
            ("Price overrides", {"fields": OVERRIDES}),
            ("Facts", {"fields": [name for name in names if name not in first]}),
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for a part of an id or a name, or for `provider/model` as the list shows a row."""
        provider, _, model = search_term.strip().partition("/")
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        return (found | queryset.filter(provider_id=provider, model_id=model)) if model else found, may_repeat

    @admin.display(description="State")
    def state(self, row: ModelProvider) -> str:
        """Return whether requests may use the offer, and why not."""
        return state_of_offer(row)

    @admin.display(description="Mapping", ordering="model_id")
    def mapping(self, row: ModelProvider) -> str:
        """Return provider and model."""
        return str(row)

    @admin.display(description="Input (USD/M)")
    def input_price(self, row: ModelProvider) -> str:
        """Return the price of a million prompt tokens."""
        return _price(row, "input")

    @admin.display(description="Output (USD/M)")
    def output_price(self, row: ModelProvider) -> str:
        """Return the price of a million completion tokens."""
        return _price(row, "output")

    @admin.display(description="Prices by")
    def price_source(self, row: ModelProvider) -> str:
        """Return the source of its prices."""
        return "operator" if row.price_overrides or not row.file_owned else "file"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the price history."""
        row = self.get_object(request, unquote(object_id))
        shown = {} if row is None else {"table": _history_of(row)}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **shown})

    def save_model(self, request: HttpRequest, obj: ModelProvider, form: Any, change: bool) -> None:
        """Save, and record changed prices, or schedule them."""
        at, author = (obj.provider_id, obj.model_id), request.user.get_username()
        before = {} if not change else price_history.card_of(ModelProvider.objects.get(pk=obj.pk))
        super().save_model(request, obj, form, change)
        price_history.note_changes({at: before}, {at: price_history.card_of(obj)}, author)
        if moment := form.cleaned_data.get(EFFECTIVE_FIELD):
            row = price_history.schedule(offer=obj, overrides=form.new_overrides, at=moment, author=author)
            messages.success(request, f"The new prices are scheduled: {row}")


@admin.register(PriceChange)
class PriceChangeAdmin(LongTableAdmin):
    """Every price change, newest first."""

    list_display = ("created_at", "provider", "model", "changed", "author")
    search_fields = ("id",)
    help_texts = {
        "provider": "The catalog's id.",
        "model": "The catalog's id.",
        "old": "Prices before, in USD; per million tokens unless a name says otherwise.",
        "new": "Prices from then on, in the same units.",
        "author": "The operator's address, or the command.",
    }

    @admin.display(description="Change")
    def changed(self, row: PriceChange) -> str:
        """Return each price before and after."""
        return "; ".join(f"{one.name}: {one.old or '-'} → {one.new or '-'}" for one in price_history.steps_of(row))


def state_of_offer(row: ModelProvider) -> str:
    """Return `Active`, or why requests do not use the offer."""
    if not row.provider.active:
        return "Provider switched off"
    if not row.model.active:
        return "Model switched off"
    return _state_of(row.active, _earliest(row.deactivated_at, row.model.retired_on))


def _state_of(active: bool, ends_on: date | None) -> str:
    """Return the state of a row of the catalog that is not served from a day on."""
    if not active:
        return "Switched off"
    return f"Ended on {ends_on}" if ends_on is not None and ends_on <= datetime.now(UTC).date() else "Active"


def _earliest(*days: date | None) -> date | None:
    return min((one for one in days if one is not None), default=None)


def _price(row: ModelProvider, name: str) -> str:
    return str(price_history.card_of(row).get(name, "-"))


def _history_of(row: ModelProvider) -> dict[str, Any]:
    """Return the price history of a mapping as a table, a line a price."""
    rows = [
        (f"{change.created_at:%Y-%m-%d %H:%M:%S}", step.name, step.old or "-", step.new or "-", change.author)
        for change in price_history.history_of(row, SHOWN_CHANGES)
        for step in price_history.steps_of(change)
    ]
    return {
        "caption": "History of prices",
        "headers": ("From (UTC)", "Price", "Old (USD)", "New (USD)", "By"),
        "rows": rows,
        "empty": "No price changes yet.",
    }
