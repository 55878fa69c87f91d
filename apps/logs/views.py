"""`/logs`: parse, query, present."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.http import HttpResponse
from django.utils import timezone
from rest_framework.request import Request

from apps.kernel.errors import NotFound
from apps.kernel.ids import find_id
from apps.kernel.rest.describe import described
from apps.kernel.rest.endpoint import Endpoint
from apps.kernel.rest.pages import page_of
from apps.keys.authenticate import ApiKeyOrSession, Recognized
from apps.keys.models import ApiKey
from apps.logs.access import Scope, access_logs, scope_of_key, scope_of_user
from apps.logs.search import find_page, find_row, find_used
from apps.logs.serializers import LogsQuery, UsedQuery, encode, entry_of, filters_of, named_of
from apps.organizations.models import User


class LogsEndpoint(Endpoint):
    """What the log's endpoints share: who may ask, what they may see."""

    authentication_classes = [ApiKeyOrSession]
    permission_classes = [Recognized]

    def scope(self) -> Scope:
        """Return what the caller may see."""
        now = timezone.now()
        if isinstance(self.request.auth, ApiKey):
            return scope_of_key(self.request.auth, now)
        return scope_of_user(cast(User, self.request.user), now)


class Logs(LogsEndpoint):
    """`GET /logs`."""

    @described("LogPage", query=LogsQuery, refuses=(403,))
    def get(self, request: Request) -> HttpResponse:
        """Answer a page."""
        query = self.read_query(LogsQuery)
        limit = query["limit"]
        scope = access_logs(self.scope(), named_of(query))
        rows = find_page(
            scope,
            filters_of(query),
            count=limit + 1,  # One more tells whether there are more.
            after=query.get("cursor"),
            ascending=query["order_by"] == "createdAt_asc",
        )
        page = page_of(rows, limit, lambda row: UUID(str(row["id"])))
        return _answer({"logs": [entry_of(row) for row in page.rows], "pagination": page.pagination})


class Log(LogsEndpoint):
    """`GET /logs/{logId}`."""

    @described("OneLog", refuses=(404,))
    def get(self, request: Request, log_id: str) -> HttpResponse:
        """Answer one entry. Raises NotFound."""
        identifier = find_id(log_id)
        row = None if identifier is None else find_row(self.scope(), identifier)
        if row is None:
            raise NotFound("Log not found")
        return _answer({"log": entry_of(row)})


class UniqueModels(LogsEndpoint):
    """`GET /logs/unique-models`."""

    @described("UsedModels", query=UsedQuery, refuses=(403,))
    def get(self, request: Request) -> HttpResponse:
        """Answer the models and providers in use."""
        query = self.read_query(UsedQuery)
        models, providers = find_used(access_logs(self.scope(), named_of(query)))
        return _answer({"models": models, "providers": providers})


def _answer(body: dict[str, Any]) -> HttpResponse:
    return HttpResponse(encode(body), content_type="application/json")
