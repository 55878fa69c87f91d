"""The endpoints `/logs` and `/activity`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from apps.kernel.errors import NotFound
from apps.kernel.ids import find_id
from apps.kernel.postgres import replica
from apps.kernel.rest.endpoint import REFUSES, Endpoint, Method, PaginationShape, described
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.pages import Page, page_of, write_cursor
from apps.keys.authenticate import ApiKeyOrSession, Recognized
from apps.keys.models import ApiKey
from apps.logs.access import LogScope, access_activity, access_logs, scope_of_key, scope_of_user
from apps.logs.activity import ActivityTotals, find_days, window_of
from apps.logs.answers import SHOWN_TYPES, UNKNOWN_TYPE
from apps.logs.export import FORMATS, ExportRecord, find_pages, write_file
from apps.logs.query import LogRow
from apps.logs.search import find_medium, find_page, find_row, find_used_models
from apps.logs.serializers import (
    DAY_FIELDS,
    LOG_FIELDS,
    ActivityDayShape,
    ActivityExportQuery,
    ActivityQuery,
    LogSessionShape,
    LogsExportQuery,
    LogsQuery,
    OneSessionQuery,
    SessionRequestShape,
    SessionsQuery,
    UsedModelsQuery,
    day_of,
    encode,
    entry_of,
    filters_of,
    requested_ids_of,
    session_entry,
    step_entry,
)
from apps.logs.sessions import find_session, find_sessions, find_steps
from apps.logs.text_search import find_text, has_words
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Organization, RetentionLevel, User


def describe_export(
    query: type[serializers.Serializer[Any]], *, refuses: tuple[int, ...]
) -> Callable[[Method], Method]:
    """Declare that a method answers a file in the requested format, and its refusals."""

    def describe(method: Method) -> Method:
        owner, verb = method.__qualname__.split(".")
        media_types = (form.content_type.partition(";")[0] for form in FORMATS.values())
        described_method: Method = extend_schema(
            operation_id=f"{verb}{owner}",
            parameters=[query],
            responses={(200, media_type): OpenApiTypes.STR for media_type in media_types},
            extensions={REFUSES: list(refuses)},
        )(method)
        return described_method

    return describe


class LogsEndpoint(Endpoint):
    """Base of the log's endpoints: authentication and scope."""

    authentication_classes = [ApiKeyOrSession]
    permission_classes = [Recognized]

    def scope(self) -> LogScope:
        """Return the caller's scope."""
        now = timezone.now()
        if isinstance(self.request.auth, ApiKey):
            return scope_of_key(self.request.auth, now)
        return scope_of_user(cast(User, self.request.user), now)


class Logs(LogsEndpoint):
    """`GET /logs`."""

    @described("LogPage", query=LogsQuery, refuses=(403,))
    def get(self, request: Request) -> HttpResponse:
        """List log entries, one page at a time."""
        query = self.read_query(LogsQuery)
        limit = query["limit"]
        scope = access_logs(self.scope(), requested_ids_of(query))
        if "text" in query:
            page = _find_text(scope, query)
            return _answer({"logs": [entry_of(row) for row in page.rows], "pagination": page.pagination})
        asked = partial(
            find_page,
            scope,
            filters_of(query),
            count=limit + 1,  # One more tells whether there are more.
            after=query.get("cursor"),
            ascending=query["order_by"] == "createdAt_asc",
        )
        rows = replica.read(lambda using: asked(using=using))
        page = page_of(rows, limit, lambda row: UUID(str(row["id"])))
        return _answer({"logs": [entry_of(row) for row in page.rows], "pagination": page.pagination})


class LogsExport(LogsEndpoint):
    """`GET /logs/export`."""

    @describe_export(LogsExportQuery, refuses=(403,))
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export all entries that match a query of `GET /logs`, as a file: CSV or JSON lines."""
        query = self.read_query(LogsExportQuery)
        scope = access_logs(self.scope(), requested_ids_of(query))
        pages = find_pages(scope, filters_of(query), ascending=query["order_by"] == "createdAt_asc")
        return download("logs", query["format"], LOG_FIELDS, ([entry_of(row) for row in page] for page in pages))


class Log(LogsEndpoint):
    """`GET /logs/{logId}`."""

    @described("OneLog", refuses=(404,))
    def get(self, request: Request, log_id: str) -> HttpResponse:
        """Show one log entry."""
        identifier = find_id(log_id)
        row = None if identifier is None else find_row(self.scope(), identifier)
        if row is None:
            raise NotFound("Log not found")
        return _answer({"log": entry_of(row)})


class LogMedium(LogsEndpoint):
    """`GET /logs/{logId}/media/{number}`."""

    @extend_schema(
        operation_id="getLogMedium",
        responses={(200, UNKNOWN_TYPE): OpenApiTypes.BINARY},
        extensions={REFUSES: [404]},
    )
    def get(self, request: Request, log_id: str, number: int) -> HttpResponse:
        """Show an image or audio of an answer, by its place in the entry's `media`, from 0."""
        return send_medium(self.scope(), log_id, number)


class Sessions(LogsEndpoint):
    """`GET /logs/sessions`."""

    @described(
        {"sessions": LogSessionShape(many=True), "pagination": PaginationShape()}, query=SessionsQuery, refuses=(403,)
    )
    def get(self, request: Request) -> HttpResponse:
        """List sessions of clients, such as agents' runs, those with the newest requests first."""
        query = self.read_query(SessionsQuery)
        scope = access_logs(self.scope(), requested_ids_of(query))
        asked = partial(
            find_sessions,
            scope,
            start=query.get("start_date"),
            end=query.get("end_date"),
            after=query.get("cursor"),
            count=query["limit"],
        )
        sessions, next_after = replica.read(lambda using: asked(using=using))
        page = Page(sessions, query["limit"], None if next_after is None else write_cursor(next_after))
        return _answer({"sessions": [session_entry(one) for one in page.rows], "pagination": page.pagination})


class OneSession(LogsEndpoint):
    """`GET /logs/sessions/{sessionId}`."""

    @described(
        {
            "session": LogSessionShape(),
            "requests": SessionRequestShape(many=True),
            "pagination": PaginationShape(),
        },
        query=OneSessionQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Show a session with its requests, the oldest first, one page at a time."""
        query = self.read_query(OneSessionQuery)
        limit = query["limit"]
        scope = access_logs(self.scope(), requested_ids_of(query))
        session = replica.read(partial(find_session, scope, session_id))
        if session is None:
            raise NotFound("Session not found")
        asked = partial(find_steps, scope, session, after=query.get("cursor"), count=limit + 1)
        steps = replica.read(lambda using: asked(using=using))
        page = page_of(steps, limit, lambda step: step.id)
        return _answer(
            {
                "session": session_entry(session),
                "requests": [step_entry(step) for step in page.rows],
                "pagination": page.pagination,
            }
        )


class UniqueModels(LogsEndpoint):
    """`GET /logs/unique-models`."""

    @described("UsedModels", query=UsedModelsQuery, refuses=(403,))
    def get(self, request: Request) -> HttpResponse:
        """List the models and providers that appear in the log."""
        query = self.read_query(UsedModelsQuery)
        scope = access_logs(self.scope(), requested_ids_of(query))
        models, providers = replica.read(partial(find_used_models, scope))
        return _answer({"models": models, "providers": providers})


class ActivityEndpoint(MemberEndpoint):
    """Base of the endpoints of activity: scope and days."""

    def find_days(self, query: dict[str, Any]) -> list[ActivityTotals]:
        """Return the requested days. Raises NotFound, Forbidden."""
        scope = access_activity(
            self.user,
            organization_id=query.get("org_id"),
            project_id=query.get("project_id"),
            api_key_id=query.get("api_key_id"),
            team_id=query.get("team_id"),
        )
        window = window_of(timezone.now(), days=query["days"], first=query.get("from"), last=query.get("to"))
        return replica.read(lambda using: find_days(scope, window, using=using))


class Activity(ActivityEndpoint):
    """`GET /activity`."""

    @described({"activity": ActivityDayShape(many=True)}, query=ActivityQuery, refuses=(403, 404))
    def get(self, request: Request) -> HttpResponse:
        """List the days (UTC) with requests, newest first."""
        return _answer({"activity": [day_of(day) for day in self.find_days(self.read_query(ActivityQuery))]})


class ActivityExport(ActivityEndpoint):
    """`GET /activity/export`."""

    @describe_export(ActivityExportQuery, refuses=(403, 404))
    def get(self, request: Request) -> StreamingHttpResponse:
        """Export the days that `GET /activity` lists, as a file: CSV or JSON lines."""
        query = self.read_query(ActivityExportQuery)
        days = self.find_days(query)
        return download("activity", query["format"], DAY_FIELDS, ([day_of(day)] for day in days))


def _find_text(scope: LogScope, query: Mapping[str, Any]) -> Page[LogRow]:
    """Return a page of the entries that have the words of a query. Raises InvalidFields."""
    if not has_words(query["text"]):
        raise InvalidFields([Issue("text", "Must have a word to search for")])
    if query["order_by"] == "createdAt_asc":
        raise InvalidFields([Issue("orderBy", "A search for text lists the newest entries first")])
    if len(scope.since) > 1:
        raise InvalidFields([Issue("orgId", "A search for text needs one organization")])
    # Content from before an organization stopped keeping it is cleared within minutes.
    keeping = Organization.objects.filter(pk__in=scope.since, retention_level=RetentionLevel.RETAIN)
    if not keeping.exists():
        return Page([], query["limit"], None)
    asked = partial(find_text, scope, filters_of(query), query["text"], after=query.get("cursor"), count=query["limit"])
    found = replica.read(lambda using: asked(using=using))
    return Page(found.rows, query["limit"], None if found.next_after is None else write_cursor(found.next_after))


def send_medium(scope: LogScope, log_id: str, number: int) -> HttpResponse:
    """Return an image or audio of an answer; a type that browsers do not show is a download. Raises NotFound."""
    identifier = find_id(log_id)
    found = None if identifier is None else find_medium(scope, identifier, number)
    if found is None:
        raise NotFound("There is no such image or audio in the log; it may be past its retention")
    is_shown = found.content_type in SHOWN_TYPES
    response = HttpResponse(found.data, content_type=found.content_type if is_shown else UNKNOWN_TYPE)
    response["Content-Disposition"] = "inline" if is_shown else f'attachment; filename="answer-{number}"'
    return response


def download(
    name: str, form: str, fields: Sequence[str], pages: Iterable[Sequence[ExportRecord]]
) -> StreamingHttpResponse:
    """Return records as a file `<name>.<form>`, streamed; `form` is one of `FORMATS`."""
    response = StreamingHttpResponse(write_file(FORMATS[form], fields, pages), content_type=FORMATS[form].content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    return response


def _answer(body: dict[str, Any]) -> HttpResponse:
    return HttpResponse(encode(body), content_type="application/json")
