"""Lists of the admin that may be some seconds old: read from a replica where there is one.

Knows how a page of Django's admin is made whole while its connection is held. A page of one row is read from the
primary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from apps.kernel import replica
from apps.kernel.admin import LongTableAdmin

# An attribute of the request: the connection that its list is read by.
_USING = "_list_read_using"


class ReplicaListAdmin(LongTableAdmin):
    """Rows whose list is read from a replica."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of whom the list is read from."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(getattr(request, _USING, replica.PRIMARY))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list; from the primary where a replica fails in the middle of it."""
        try:
            return replica.read(partial(self._show, request, extra_context))
        finally:
            setattr(request, _USING, replica.PRIMARY)

    def render_list(self, request: HttpRequest, extra_context: dict[str, Any] | None, using: str) -> HttpResponse:
        """Return the list with all of its rows, which are read while it is rendered."""
        response = super().changelist_view(request, extra_context)
        return response.render() if isinstance(response, TemplateResponse) else response

    def _show(self, request: HttpRequest, extra_context: dict[str, Any] | None, using: str) -> HttpResponse:
        setattr(request, _USING, using)
        return self.render_list(request, extra_context, using)
