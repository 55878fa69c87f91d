"""Admin base classes: what operators may change in every page of Django's admin, and what they only look at.

Knows kinds of rows by who writes them. Must never know a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib.admin import ShowFacets
from django.core.paginator import Paginator
from django.db.models import Field, JSONField, Model, QuerySet, URLField
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from apps.kernel.admin_fields import FiniteJsonField, PlainDecimalField, RowSelect
from apps.kernel.ids import find_id
from apps.kernel.money import MoneyField, plain
from apps.kernel.number_markup import mark_numbers

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    _Page = ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator
    from unfold.admin import ModelAdmin as _Page

# The newest rows of a long table that are shown; older ones are found by id.
SHOWN = 1_000
# What is shown where there is no amount.
NO_AMOUNT = "-"


def usd(amount: Decimal | None) -> str:
    """Return an amount of USD for people: exact, at least in cents, without further zeros at its end."""
    if amount is None:
        return NO_AMOUNT
    whole, _, part = plain(amount).partition(".")
    return f"{whole}.{part.ljust(2, '0')}"


def _money_column(field: MoneyField) -> Callable[[Any], str]:
    def column(row: Any) -> str:
        return mark_numbers(usd(getattr(row, field.name)))

    column.short_description = f"{field.verbose_name} (USD)"  # type: ignore[attr-defined]  # read by the admin
    column.admin_order_field = field.name  # type: ignore[attr-defined]  # read by the admin
    return column


def _shorten_amount(shown: Any) -> Any:
    """Return a read-only amount as people read it; what is no amount as it is."""
    try:
        return mark_numbers(usd(Decimal(str(shown).replace(",", ""))))
    except InvalidOperation:
        return shown


class RowAdmin(_Page):
    """Rows that operators may change, each saved and deleted by its own model: copies elsewhere then become stale."""

    list_per_page = 50
    show_full_result_count = False
    # No row has a page on a site.
    view_on_site = False
    # What a field means where its name does not say it.
    help_texts: Mapping[str, str] = {}

    def __init__(self, model: Any, admin_site: Any) -> None:
        super().__init__(model, admin_site)
        amounts = [field for field in model._meta.concrete_fields if isinstance(field, MoneyField)]
        self._amounts = {field.name: _money_column(field) for field in amounts}
        self.readonly_preprocess_fields = dict.fromkeys(self._amounts, _shorten_amount)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns, with amounts as people read them."""
        return [self._amounts.get(str(one), one) for one in super().get_list_display(request)]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form, with what fields mean also beside those that are only shown."""
        return super().get_form(request, obj, change, help_texts=dict(self.help_texts), **kwargs)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Take an address without a scheme for one of HTTPS, and show amounts without zeros at their end."""
        if isinstance(db_field, URLField):
            kwargs["assume_scheme"] = "https"
        if isinstance(db_field, JSONField):
            kwargs |= {"form_class": FiniteJsonField}
        if isinstance(db_field, MoneyField):
            kwargs |= {"form_class": PlainDecimalField, "widget": UnfoldAdminDecimalFieldWidget}
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Show nothing chosen for what no row can be."""
        if db_field.name in self.get_autocomplete_fields(request):
            kwargs.setdefault("widget", RowSelect(db_field, self.admin_site, using=kwargs.get("using")))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Tell whether an address may filter the list so: by its filters, and by rows that others link to.

        The framework takes any column, such as a digest that no page shows, and lets it be guessed letter by letter.
        """
        column, _, how = lookup.partition(LOOKUP_SEP)
        if column in {"pk", self.opts.pk.name}:
            return how in {"", "exact", "in"}
        filters = (one[0] if isinstance(one, tuple) else one for one in self.get_list_filter(request))
        if column in {one.name for one in self.opts.concrete_fields if not one.is_relation} and column not in filters:
            return False
        return super().lookup_allowed(lookup, value, request)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete one by one."""
        for row in queryset:
            row.delete()


class KeptAdmin(RowAdmin):
    """Rows that others speak of: they change, and are never deleted here."""

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False


class MadeElsewhereAdmin(KeptAdmin):
    """Rows that begin elsewhere, with what the admin never sees: they change, and are neither added nor deleted."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False


class ReadAdmin(RowAdmin):
    """Rows that the product alone writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False


class RecordAdmin(ReadAdmin, KeptAdmin):
    """What happened: to be looked at alone."""


class _Newest(_Paginator):
    """The newest rows alone: nobody counts a table of millions, or pages through it."""

    def __init__(self, object_list: QuerySet[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(object_list[: SHOWN + 1], *args, **kwargs)

    @cached_property
    def count(self) -> int:
        """How many rows are shown."""
        return min(self._found, SHOWN)

    @property
    def told(self) -> str:
        """How many there are, as far as that is known."""
        return f"more than {SHOWN:,}" if self._found > SHOWN else f"{self._found:,}"

    @cached_property
    def _found(self) -> int:
        return int(cast(Any, self.object_list).count())


class LongTableAdmin(RecordAdmin):
    """Rows of a table too long to be searched but by id; `owners` are the columns looked up beside the row's own."""

    paginator = _Newest
    ordering = ("-id",)
    search_help_text = "An exact id"
    search_fields = ("id",)
    # Only the order of ids has an index over all rows.
    sortable_by = ()
    # To count what each filter would leave is to read the table whole.
    show_facets = ShowFacets.NEVER
    owners: tuple[str, ...] = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an id up, as the row's own first and then as one of its owners'."""
        if not search_term:
            return queryset, False
        identifier = find_id(search_term.strip())
        if identifier is None:
            return queryset.none(), False
        return self.find_first(queryset, identifier, ("pk", *self.owners)), False

    def find_first(self, queryset: QuerySet[Any], identifier: UUID, columns: Iterable[str]) -> QuerySet[Any]:
        """Return the rows that have an id in the first of the columns in which any has it."""
        for column in columns:
            found = queryset.filter(**{column: identifier})
            if found.exists():
                return found
        return queryset.none()
