"""Admin base classes: what operators may change in every page of Django's admin, and what they only look at.

Knows kinds of rows by who writes them. Must never know a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import Field, Model, QuerySet, URLField
from django.http import HttpRequest
from django.utils.functional import cached_property

from apps.kernel.ids import find_id

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    _Page = ModelAdmin[Model]
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator
    from unfold.admin import ModelAdmin as _Page

# The newest rows of a long table that are shown; older ones are found by id.
SHOWN = 1_000


class RowAdmin(_Page):
    """Rows that operators may change, each saved and deleted by its own model: copies elsewhere then become stale."""

    list_per_page = 50
    show_full_result_count = False

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Take an address without a scheme for one of HTTPS."""
        if isinstance(db_field, URLField):
            kwargs["assume_scheme"] = "https"
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete one by one."""
        for row in queryset:
            row.delete()


class KeptAdmin(RowAdmin):
    """Rows that others speak of: they change, and are never deleted here."""

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
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
        return self._find(queryset, identifier), False

    def _find(self, queryset: QuerySet[Any], identifier: UUID) -> QuerySet[Any]:
        for column in ("pk", *self.owners):
            found = queryset.filter(**{column: identifier})
            if found.exists():
                return found
        return queryset.none()
