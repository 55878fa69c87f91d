"""Admin base class of rows with a public id: found by the id that clients see, or by an id of their owners."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from apps.kernel.ids import find_id
from apps.kernel.pages.admin import LongTableAdmin
from apps.responses.public_ids import is_public_id


class PublicIdAdmin(LongTableAdmin):
    """Rows of a long table; `public_id` is the column with the id that clients see."""

    ordering = ("-pk",)
    public_id = "pk"
    search_help_text = "An exact id: its own, or that of an organization or a project"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an id up, as an owner's or as the row's own."""
        words = search_term.strip()
        if not words:
            return queryset, False
        identifier = find_id(words)
        if identifier is not None:
            return self.find_first(queryset, identifier, self.owners), False
        return queryset.filter(**{self.public_id: words}) if is_public_id(words) else queryset.none(), False
