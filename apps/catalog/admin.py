"""The catalog in the admin: facts come from the data files, operations are the operators'."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.catalog.models import CatalogRow, Model, ModelProvider, Provider
from apps.catalog.price_cards import read_card
from apps.kernel.admin import KeptAdmin

# What operators change of a row that a data file states; all the rest is the file's.
_OPERATIONS = frozenset({"active", "priority", "price_overrides"})


class CatalogAdmin(KeptAdmin):
    """Rows of the catalog. Those of a data file can be switched off, not deleted: the file would bring them back."""

    search_help_text = "A part of an id or a name"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the facts, for a row whose facts a file states."""
        kept = ["file_owned", "created_at", "updated_at"]
        if not isinstance(obj, CatalogRow) or not obj.file_owned:
            return kept if obj is None else [obj._meta.pk.name, *kept]
        return [*(field.name for field in obj._meta.fields if field.name not in {*_OPERATIONS, *kept}), *kept]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Tell whether the operator may delete this row: only one that operators made."""
        return obj is not None and not obj.file_owned and request.user.is_superuser


@admin.register(Provider)
class ProviderAdmin(CatalogAdmin):
    """Who serves models."""

    list_display = ("id", "name", "dialect", "active", "priority")
    list_filter = ("active", "dialect")
    list_editable = ("active", "priority")
    search_fields = ("id", "name")
    ordering = ("id",)


@admin.register(Model)
class ModelAdmin(CatalogAdmin):
    """What is served."""

    list_display = ("id", "name", "family", "mode", "context_length", "released_on", "active")
    list_filter = ("active", "mode")
    list_editable = ("active",)
    search_fields = ("id", "name", "family")
    ordering = ("id",)


class UnpricedFilter(admin.SimpleListFilter):
    """Whether any price is known: what requests to the others cost counts as nothing, and their logs say so."""

    title = "price"
    parameter_name = "price"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer both."""
        return [("known", "Known"), ("unpriced", "Unpriced")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the mappings with a price, or those without; the catalog is small enough to read each card."""
        if self.value() is None:
            return queryset
        unpriced = [row.pk for row in queryset.only("pk", "prices", "price_overrides") if _is_unpriced(row)]
        return queryset.filter(pk__in=unpriced) if self.value() == "unpriced" else queryset.exclude(pk__in=unpriced)


def _is_unpriced(row: ModelProvider) -> bool:
    """Return whether a mapping states no price; one whose prices cannot be read is not served at all."""
    try:
        return read_card(row.prices | row.price_overrides).unpriced
    except (ValueError, TypeError):
        return False


@admin.register(ModelProvider)
class ModelProviderAdmin(CatalogAdmin):
    """Which provider serves which model, and at what price."""

    list_display = ("model", "provider", "model_name", "stability", "deactivated_at", "active", "priority")
    list_filter = ("active", UnpricedFilter, "stability", "provider")
    list_editable = ("active", "priority")
    list_select_related = ("model", "provider")
    search_fields = ("model__id", "model_name", "provider__id")
    autocomplete_fields = ("model", "provider")
    ordering = ("model_id", "provider_id")
