"""Admin base classes and form fields: which rows operators may change, and which are read-only.

Each class stands for a kind of table, by who writes its rows. Long lists may be read from a replica, and so be seconds
old; the page of a single row is read from the primary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django import forms
from django.contrib.admin import ShowFacets
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Field, JSONField, Model, QuerySet, URLField
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.text import Truncator
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextareaWidget

from apps.kernel.ids import find_id
from apps.kernel.money import MoneyField, plain
from apps.kernel.pages.number_formats import mark_numbers
from apps.kernel.postgres import replica

# Names of fields whose values are not written down, and the characters of a value that are.
_SECRET = re.compile(r"password|secret|token|credential|digest", re.IGNORECASE)
_MAX_CHANGE_LENGTH = 200


class PlainDecimalField(forms.DecimalField):
    """A decimal field without the column's trailing zeros."""

    def prepare_value(self, value: Any) -> Any:
        """Return the displayed text."""
        return plain(value) if isinstance(value, Decimal) else value


class FiniteJsonField(forms.JSONField):
    """JSON whose numbers PostgreSQL can store: no overflow such as 1e400, and no NaN."""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raises ValidationError."""
        read = super().to_python(value)
        try:
            json.dumps(read, allow_nan=False)
        except ValueError:
            raise ValidationError("Numbers must be finite.", code="invalid") from None
        return read


class RowSelect(AutocompleteSelect):
    """An autocomplete for another table's rows. A value that cannot be an id, as in a bad link, selects none."""

    def optgroups(self, name: str, value: Sequence[str], attrs: dict[str, Any] | None = None) -> Any:
        """Return the options: the selected row."""
        return super().optgroups(name, [one for one in value if not one or self._may_be(one)], attrs)

    def _may_be(self, identifier: Any) -> bool:
        field: Any = self.field
        try:
            field.target_field.to_python(identifier)
        except ValidationError:
            return False
        return "\0" not in str(identifier)


class LinesField(forms.CharField):
    """A list of texts, one per line; surrounding spaces and empty lines are ignored."""

    widget = UnfoldAdminTextareaWidget(attrs={"rows": 5})

    def prepare_value(self, value: Any) -> Any:
        """Return the displayed text."""
        return "\n".join(str(one) for one in value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the lines."""
        if isinstance(value, list):
            return value
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the lines differ."""
        return bool(self.to_python(initial) != self.to_python(data))


if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    _Page = ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator
    from unfold.admin import ModelAdmin as _Page

# Rows of a long table in its list; older ones are found by id.
SHOWN = 1_000
# Shown for missing amounts.
NO_AMOUNT = "-"


def usd(amount: Decimal | None) -> str:
    """Format USD exactly, with at least two decimals and no further trailing zeros."""
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
    """Format a read-only amount; return other values unchanged."""
    try:
        return mark_numbers(usd(Decimal(str(shown).replace(",", ""))))
    except InvalidOperation:
        return shown


class RowAdmin(_Page):
    """Editable rows, saved and deleted one by one through the model, so that caches are invalidated."""

    list_per_page = 50
    show_full_result_count = False
    # Rows have no page on the public site.
    view_on_site = False
    # Help texts of fields.
    help_texts: Mapping[str, str] = {}

    def __init__(self, model: Any, admin_site: Any) -> None:
        super().__init__(model, admin_site)
        amounts = [field for field in model._meta.concrete_fields if isinstance(field, MoneyField)]
        self._amounts = {field.name: _money_column(field) for field in amounts}
        self.readonly_preprocess_fields = dict.fromkeys(self._amounts, _shorten_amount)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns with formatted amounts."""
        return [self._amounts.get(str(one), one) for one in super().get_list_display(request)]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form with help texts, also for read-only fields."""
        return super().get_form(request, obj, change, help_texts=dict(self.help_texts), **kwargs)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Assume HTTPS for URLs without a scheme, and show amounts without trailing zeros."""
        if isinstance(db_field, URLField):
            kwargs["assume_scheme"] = "https"
        if isinstance(db_field, JSONField):
            kwargs |= {"form_class": FiniteJsonField}
        if isinstance(db_field, MoneyField):
            kwargs |= {"form_class": PlainDecimalField, "widget": UnfoldAdminDecimalFieldWidget}
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Select nothing for a value that cannot be a row's id."""
        if db_field.name in self.get_autocomplete_fields(request):
            kwargs.setdefault("widget", RowSelect(db_field, self.admin_site, using=kwargs.get("using")))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Return whether a query parameter may filter the list: only its filters, and links from other rows.

        Django allows any column, so that a hidden digest could be guessed character by character.
        """
        column, _, how = lookup.partition(LOOKUP_SEP)
        if column in {"pk", self.opts.pk.name}:
            return how in {"", "exact", "in"}
        filters = (one[0] if isinstance(one, tuple) else one for one in self.get_list_filter(request))
        if column in {one.name for one in self.opts.concrete_fields if not one.is_relation} and column not in filters:
            return False
        return super().lookup_allowed(lookup, value, request)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Return each changed field with its values before and after; a secret is only named."""
        if add or not form.changed_data:
            return super().construct_change_message(request, form, formsets, add)
        return "; ".join(_change_of(form, name) for name in form.changed_data)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the rows one by one."""
        for row in queryset:
            row.delete()


def _change_of(form: Any, name: str) -> str:
    # The form of a new password names the column, which is none of its fields.
    field = form.fields.get(name)
    label = str((field and field.label) or name.capitalize())
    if field is None or _SECRET.search(name):
        return f"{label}: changed"
    before, after = form.initial.get(name), form.cleaned_data.get(name)
    return f"{label}: {_change_text(before)} → {_change_text(after)}"


def _change_text(value: Any) -> str:
    if value in (None, ""):
        return "-"
    if isinstance(value, Model):
        value = value.pk
    elif isinstance(value, QuerySet | list | tuple):
        value = ", ".join(str(getattr(one, "pk", one)) for one in value) or "-"
    elif isinstance(value, Decimal):
        value = plain(value)
    return Truncator(str(value)).chars(_MAX_CHANGE_LENGTH)


class KeptAdmin(RowAdmin):
    """Rows that other rows refer to: editable, but never deleted here."""

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False


class MadeElsewhereAdmin(KeptAdmin):
    """Rows that are created elsewhere, with data that the admin never sees: editable, but neither added nor deleted."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False


class ReadAdmin(RowAdmin):
    """Rows that only the gateway writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Never."""
        return False


class RecordAdmin(ReadAdmin, KeptAdmin):
    """Records of events: read-only."""


class _Newest(_Paginator):
    """A paginator of the newest rows only: it never counts a table of millions."""

    def __init__(self, object_list: QuerySet[Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(object_list[: SHOWN + 1], *args, **kwargs)

    @cached_property
    def count(self) -> int:
        """The number of rows in the list."""
        return min(self._found, SHOWN)

    @property
    def told(self) -> str:
        """The total number of rows, as far as known."""
        return f"more than {SHOWN:,}" if self._found > SHOWN else f"{self._found:,}"

    @cached_property
    def _found(self) -> int:
        return int(cast(Any, self.object_list).count())


class LongTableAdmin(RecordAdmin):
    """Rows of a long table, searched by id only; `owners` are further id columns to search."""

    paginator = _Newest
    ordering = ("-id",)
    search_help_text = "An exact id"
    search_fields = ("id",)
    # Only the primary key has an index over all rows.
    sortable_by = ()
    # Counting each filter would scan the whole table.
    show_facets = ShowFacets.NEVER
    owners: tuple[str, ...] = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search an id in the primary key, then in the owners' columns."""
        if not search_term:
            return queryset, False
        identifier = find_id(search_term.strip())
        if identifier is None:
            return queryset.none(), False
        return self.find_first(queryset, identifier, ("pk", *self.owners)), False

    def find_first(self, queryset: QuerySet[Any], identifier: UUID, columns: Iterable[str]) -> QuerySet[Any]:
        """Return the rows with an id in the first column where it occurs."""
        for column in columns:
            found = queryset.filter(**{column: identifier})
            if found.exists():
                return found
        return queryset.none()


# Attribute of the request: the connection for its list.
_USING = "_list_read_using"


class ReplicaListAdmin(LongTableAdmin):
    """Rows whose list is read from a replica."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows from the list's connection."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(getattr(request, _USING, replica.PRIMARY))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list; from the primary if a replica fails while it is read."""
        try:
            return replica.read(partial(self._show, request, extra_context))
        finally:
            setattr(request, _USING, replica.PRIMARY)

    def render_list(self, request: HttpRequest, extra_context: dict[str, Any] | None, using: str) -> HttpResponse:
        """Return the rendered list; its rows are read during rendering."""
        response = super().changelist_view(request, extra_context)
        return response.render() if isinstance(response, TemplateResponse) else response

    def _show(self, request: HttpRequest, extra_context: dict[str, Any] | None, using: str) -> HttpResponse:
        setattr(request, _USING, using)
        return self.render_list(request, extra_context, using)
