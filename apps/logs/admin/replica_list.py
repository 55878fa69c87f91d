"""Admin lists that are read from a replica, if there is one, and so may be seconds old.

The page of a single row is read from the primary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from apps.kernel.pages.admin import LongTableAdmin
from apps.kernel.postgres import replica

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
