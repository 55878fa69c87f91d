"""Request logs: list, filters, saved views, one request, export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase
from django.urls import path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext, ngettext

from apps.console.forms import Form, attempt, error_words, read_query, refused
from apps.console.pages.logs.period import (
    RANGES,
    ZONE,
    active_range,
    bar_period,
    begin_of_histogram,
    local_text,
    midnight_before,
    period_of,
    reader_zone,
    zone_name,
)
from apps.console.pages.logs.text import TEXT, keeps_content, search_text, typed_text
from apps.console.rendering import show
from apps.console.snippets import request_body, request_snippets
from apps.console.visit import lead_to, remember, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError, InvalidRequest, NotFound
from apps.kernel.ids import find_id
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.kernel.rest.pages import page_of
from apps.keys.models import ApiKey
from apps.logs.access import LogScope, access_logs, scope_of_user
from apps.logs.comparison import compare
from apps.logs.export import find_pages
from apps.logs.histogram import Bar, find_histogram
from apps.logs.query import LogFilters, LogRow, read_object
from apps.logs.request_page import ENDS, SCORE_COLUMNS, Link, Reader, end_of, first_line
from apps.logs.request_page import page_of as page_of_request
from apps.logs.saved_views import delete_view, find_views, save_view
from apps.logs.search import find_page, find_row, find_used_models
from apps.logs.serializers import LOG_FIELDS, LogsExportQuery, LogsQuery, entry_of, filters_of, requested_ids_of
from apps.logs.suggestions import ANSWER_ID, find_request
from apps.logs.views import download, send_medium

# Keys in the filter's list; others are reached by a link from their page.
MAX_KEYS = 200
# Columns of the list beside the time, by their names in the query and the cookie; and those that are shown at first.
COLUMNS: Final = {
    "status": gettext_lazy("Status"),
    "model": gettext_lazy("Model, provider"),
    "answer": gettext_lazy("Answer"),
    "key": gettext_lazy("Key, project"),
    "tokens": gettext_lazy("Tokens"),
    "cost": gettext_lazy("Cost"),
    "duration": gettext_lazy("Seconds"),
    "kind": gettext_lazy("Kind"),
    "source": gettext_lazy("Source"),
    "tags": gettext_lazy("Tags"),
}
FIRST_COLUMNS: Final = ("status", "model", "answer", "key", "tokens", "cost", "duration")
COLUMNS_COOKIE: Final = "gateway-log-columns"
# Height and width of the histogram in its own units: a bar is a unit wide, with a gap.
_HEIGHT, _GAP = 40, 0.15
# Query parameters of a period.
_PERIOD = frozenset({"startDate", "endDate", "range", ZONE})
# Characters of a query to save, and of a row's tags.
_MAX_QUERY = 4_000
_MAX_TAGS = 100
# Parameter of a request's page: the id of another one.
_WITH = "with"


@workspace_page()
def logs(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List requests that match the filters, newest first, below a histogram of them."""
    if "column" in request.GET:
        return _choose_columns(request)
    return _show_list(request, workspace, Form())


def _show_list(request: HttpRequest, workspace: Workspace, view_form: Form) -> HttpResponse:
    """Show the list; `view_form` is a refused form of a saved view, whose query the list has."""
    rows: list[LogRow] = []
    zone, text, search = reader_zone(request), typed_text(request), None
    form, following, query, scope = Form(_shown(request.GET)), None, {}, None
    try:
        if text and (named := find_request(_of_organization(workspace), text)) is not None:
            return lead_to("one_log", workspace.organization.id, log_id=named)
        if wanted := request.GET.get("id", "").strip():
            return lead_to("one_log", workspace.organization.id, log_id=_find_by_id(workspace, wanted))
        query = _read_filters(request, workspace)
        scope = access_logs(_scope(workspace), requested_ids_of(query))
        limit, after = query["limit"], query.get("cursor")
        if text:
            search = search_text(workspace, scope, filters_of(query), text, after=after, count=limit)
            rows, following = search.rows, search.next_cursor
        else:
            is_ascending = query["order_by"] == "createdAt_asc"
            asked = partial(find_page, scope, filters_of(query), count=limit + 1, after=after, ascending=is_ascending)
            page = page_of(replica.read(partial(_ask, asked)), limit, lambda row: UUID(str(row["id"])))
            rows, following = list(page.rows), page.next_cursor
    except ApiError as error:
        form = refused(request.GET, error)
    begins, ends, active = query.get("start_date"), query.get("end_date"), active_range(request)
    if not active and form.status == 200:
        form = Form({**form.values, "startDate": local_text(begins, zone), "endDate": local_text(ends, zone)})
    is_first = not request.GET.get("cursor")
    models, providers = replica.read(partial(find_used_models, _of_organization(workspace)))
    return show(
        request,
        "logs/list",
        workspace,
        entry="logs",
        status=max(form.status, view_form.status),
        form=form,
        rows=_listed(workspace, rows),
        columns=_columns(request),
        all_columns=list(COLUMNS.items()),
        histogram=_histogram(request, scope, filters_of(query), zone)
        if scope is not None and is_first and not text
        else None,
        text=text,
        text_name=TEXT,
        search=search,
        keeps_content=keeps_content(workspace),
        ranges=[(words, _period_link(request.GET, range=name), name) for name, words, _ in RANGES],
        any_time=_period_link(request.GET),
        range=active,
        zone=zone_name(zone),
        from_label=gettext("From ({zone})").format(zone=zone_name(zone)),
        to_label=gettext("To ({zone})").format(zone=zone_name(zone)),
        zone_field=ZONE,
        views=find_views(workspace.organization, workspace.user),
        view_form=view_form,
        filters=_query_with(request.GET),
        is_filtered=bool({*_shown(request.GET)} - {ZONE}),
        in_future=begins is not None and begins > timezone.now(),
        is_first=is_first,
        following=None if following is None else _query_with(request.GET, cursor=following),
        newest=_query_with(request.GET),
        newest_id=rows[0]["id"] if rows and is_first else "",
        ends=[("", gettext("Any")), *ENDS],
        models=[("", gettext("Any")), *((one, one) for one in models)],
        providers=[("", gettext("Any")), *((one, one) for one in providers)],
        projects=[("", gettext("Any")), *((one.id, one.name) for one in workspace.projects)],
        teams=[("", gettext("Any")), *((one.id, one.name) for one in workspace.teams)] if workspace.teams else [],
        keys=[("", gettext("Any")), *_keys(workspace, request.GET.get("apiKeyId", ""))],
        csv=_query_with(request.GET, format="csv"),
        jsonl=_query_with(request.GET, format="jsonl"),
    )


@workspace_page("GET", "POST")
def views(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Save the filters of the list under a name, or delete a saved view; then show the list."""
    organization, user = workspace.organization, workspace.user
    address = reverse("console:logs", kwargs={"organization_id": organization.id})
    if request.method != "POST":
        # Links of the list below a refused form.
        return HttpResponseRedirect(f"{address}?{request.GET.urlencode()}")
    if view_id := request.POST.get("delete", ""):
        delete_view(organization, user, view_id, is_admin=workspace.is_admin)
        messages.success(request, gettext("The saved view was deleted."))
        return lead_to("logs", organization.id)

    def save() -> str:
        name, is_shared = request.POST.get("name", ""), request.POST.get("shared") == "true"
        return save_view(organization, user, name=name, query=query, is_shared=is_shared).query

    query = request.POST.get("query", "")[:_MAX_QUERY]
    # The list below a refused form has the filters that the form would save.
    request.GET = QueryDict(query)
    saved, form = attempt(request, save)
    if saved is None:
        return _show_list(request, workspace, form)
    messages.success(request, gettext("The view was saved."))
    return HttpResponseRedirect(f"{address}?{saved}", status=303)


@workspace_page()
def export(request: HttpRequest, workspace: Workspace) -> HttpResponseBase:
    """Export all requests that match the filters as a file, like `GET /logs/export`."""
    query = read_query(request, LogsExportQuery, orgId=str(workspace.organization.id), **period_of(request))
    scope = access_logs(_scope(workspace), requested_ids_of(query))
    pages = find_pages(scope, filters_of(query), ascending=query["order_by"] == "createdAt_asc")
    return download("logs", query["format"], LOG_FIELDS, ([entry_of(row) for row in page] for page in pages))


@workspace_page()
def one_log(request: HttpRequest, workspace: Workspace, log_id: str) -> HttpResponse:
    """Show one request; `with` in the query names another one that it is compared with."""
    identifier = find_id(log_id)
    row = None if identifier is None else find_row(_of_organization(workspace), identifier)
    if identifier is None or row is None:
        raise NotFound("There is no such request in the log; it may be past its retention")
    problem = ""
    if other_id := request.GET.get(_WITH, "").strip():
        try:
            return _compared(request, workspace, row, _find_by_id(workspace, other_id))
        except InvalidRequest as error:
            problem = error_words(error.message)
    key = ApiKey.objects.filter(pk=row["api_key_id"]).first()
    project = next((one for one in workspace.projects if one.id == row["project_id"]), None)
    requests = reverse("console:logs", kwargs={"organization_id": workspace.organization.id})
    name = f"{key.description} ({key.masked_token})" if key else str(row["api_key_id"])
    links = {"api_key_id": Link(name, f"{requests}?apiKeyId={row['api_key_id']}")}
    if project is not None:
        links["project_id"] = Link(project.name)
    if row["session_id"]:
        links["session_id"] = Link(row["session_id"], _path_of("one_session", workspace, session_id=row["session_id"]))
    return show(
        request,
        "logs/one",
        workspace,
        entry="logs",
        status=400 if problem else 200,
        problem=problem,
        row=_with_end(row),
        details=page_of_request(row, Reader.TENANT, links, with_content=True),
        score_columns=SCORE_COLUMNS,
        snippets=request_snippets(row, settings.PUBLIC_URL),
        can_replay=request_body(row) is not None,
        address=f"{settings.PUBLIC_URL}{_path_of('one_log', workspace, log_id=str(identifier))}",
        filters=_query_with(request.GET),
        **_neighbors(request, workspace, identifier),
    )


def _compared(request: HttpRequest, workspace: Workspace, row: LogRow, other_id: UUID) -> HttpResponse:
    """Show two requests side by side. Raises InvalidRequest for one that has expired meanwhile."""
    other = find_row(_of_organization(workspace), other_id)
    if other is None:
        raise InvalidRequest("No request in the log has this id; it may be past its retention", param=_WITH)
    return show(
        request,
        "logs/compare",
        workspace,
        entry="logs",
        row=row,
        other=other,
        comparison=compare(row, other),
        filters=_query_with(request.GET),
    )


@workspace_page()
def medium(request: HttpRequest, workspace: Workspace, log_id: str, number: int) -> HttpResponse:
    """Send an image or audio of an answer; a type that browsers do not show is a download."""
    return send_medium(_of_organization(workspace), log_id, number)


def _listed(workspace: Workspace, rows: Sequence[LogRow]) -> list[dict[str, Any]]:
    """Return rows of the list with the names of their keys and projects, and the first line of their answers."""
    keys = dict(ApiKey.objects.filter(pk__in={row["api_key_id"] for row in rows}).values_list("pk", "description"))
    projects = {one.id: one.name for one in workspace.projects}
    return [
        {
            **_with_end(row),
            "key": keys.get(row["api_key_id"], ""),
            "project": projects.get(row["project_id"], ""),
            "answer": first_line(row),
            "tags": _tags(row),
        }
        for row in rows
    ]


def _tags(row: LogRow) -> str:
    text = ", ".join(f"{name}: {value}" for name, value in read_object(row["custom_headers"]).items())
    return text if len(text) <= _MAX_TAGS else f"{text[:_MAX_TAGS]}…"


def _histogram(request: HttpRequest, scope: LogScope, filters: LogFilters, zone: tzinfo) -> dict[str, Any] | None:
    """Return the histogram as the template draws it, None if there is none; each bar links to its period."""
    end = filters.end or timezone.now()
    start = begin_of_histogram(filters.start, end)
    origin = midnight_before(start, zone)
    found = replica.read(lambda using: find_histogram(scope, filters, start=start, end=end, origin=origin, using=using))
    if found is None:
        return None
    most = max(one.requests for one in found.bars)
    return {
        "bars": [
            {
                "bar": one,
                "x": index,
                **_heights(one, most),
                "link": _period_link(request.GET, **bar_period(one)),
                "words": _bar_words(one, zone),
            }
            for index, one in enumerate(found.bars)
        ],
        "requests": sum(one.requests for one in found.bars),
        "errors": sum(one.errors for one in found.bars),
        "step": as_text.seconds(found.step.total_seconds()),
        "start": found.bars[0].start,
        "end": found.bars[-1].end,
        "is_cut": found.is_cut,
        "is_default": filters.start is None and filters.end is None,
        "height": _HEIGHT,
        "bar_width": 1 - _GAP,
    }


def _bar_words(bar: Bar, zone: tzinfo) -> str:
    starts = bar.start.astimezone(zone)
    words = ngettext(
        "{time}: {requests} request, {errors} failed", "{time}: {requests} requests, {errors} failed", bar.requests
    )
    time = f"{date_format(starts, 'M j')}, {starts:%H:%M:%S}"
    return words.format(time=time, requests=bar.requests, errors=bar.errors)


def _heights(bar: Bar, most: int) -> dict[str, float]:
    """Return the height of a bar and of its failed part, and where both begin; one request shows beside thousands."""
    height = round(max(_HEIGHT * bar.requests / most, 1), 2) if bar.requests else 0
    failed = round(height * bar.errors / bar.requests, 2) if bar.requests else 0
    return {
        "height": height,
        "top": round(_HEIGHT - height, 2),
        "failed": failed,
        "failed_top": round(_HEIGHT - failed, 2),
    }


def _columns(request: HttpRequest) -> list[str]:
    """Return the columns that the reader chose, in the order of `COLUMNS`."""
    chosen = request.COOKIES.get(COLUMNS_COOKIE, "").split(".")
    known = [name for name in COLUMNS if name in chosen]
    return known or list(FIRST_COLUMNS)


def _choose_columns(request: HttpRequest) -> HttpResponse:
    """Keep the columns of the form in a cookie, and show the list again."""
    chosen = request.GET.getlist("column")
    query = request.GET.copy()
    del query["column"]
    response = HttpResponseRedirect(f"?{query.urlencode()}")
    remember(response, COLUMNS_COOKIE, ".".join(name for name in COLUMNS if name in chosen))
    return response


def _read_filters(request: HttpRequest, workspace: Workspace) -> dict[str, Any]:
    """Return the filters of the query. Raises InvalidFields."""
    return read_query(request, LogsQuery, orgId=str(workspace.organization.id), **period_of(request))


def _period_link(said: QueryDict, **period: str) -> str:
    """Return the current query string with another period, or none."""
    kept = {name: value for name, value in _shown(said).items() if name not in _PERIOD}
    query = QueryDict(mutable=True)
    query.update({**kept, **period})
    return query.urlencode()


def _neighbors(request: HttpRequest, workspace: Workspace, identifier: UUID) -> dict[str, Any]:
    """Return the ids of the next newer and the next older request that match the filters of the list."""
    names: dict[str, Any] = {"newer": None, "older": None}
    if typed_text(request):
        # The neighbors among the requests that a text search finds are not looked for.
        return names
    try:
        query = _read_filters(request, workspace)
        scope = access_logs(_scope(workspace), requested_ids_of(query))
    except ApiError:
        return names
    for name, ascending in (("newer", True), ("older", False)):
        asked = partial(find_page, scope, filters_of(query), count=1, after=identifier, ascending=ascending)
        found = replica.read(partial(_ask, asked))
        names[name] = found[0]["id"] if found else None
    return names


def _ask(asked: Callable[..., list[LogRow]], using: str) -> list[LogRow]:
    return asked(using=using)


def _path_of(route: str, workspace: Workspace, **names: str) -> str:
    return reverse(f"console:{route}", kwargs={"organization_id": workspace.organization.id, **names})


def _with_end(row: LogRow) -> LogRow:
    """Return a row with its finish reason as text."""
    return {**row, "end": end_of(row)}


def _scope(workspace: Workspace) -> LogScope:
    return scope_of_user(workspace.user, timezone.now())


def _of_organization(workspace: Workspace) -> LogScope:
    return access_logs(_scope(workspace), requested_ids_of({"org_id": str(workspace.organization.id)}))


def _find_by_id(workspace: Workspace, wanted: str) -> UUID:
    """Return the log id of an answer id. Raises InvalidRequest."""
    identifier = find_id(wanted.removeprefix(ANSWER_ID))
    if identifier is None or find_row(_of_organization(workspace), identifier) is None:
        raise InvalidRequest("No request in the log has this id; it may be past its retention", param="id")
    return identifier


def _keys(workspace: Workspace, chosen: str) -> list[tuple[UUID, str]]:
    """Return the organization's keys for the filter, also deleted ones, which its log shows anyway; always with the
    chosen one."""
    rows = ApiKey.objects.filter(project__organization=workspace.organization).order_by("-created_at")
    listed = list(rows[:MAX_KEYS])
    identifier = find_id(chosen)
    if identifier is not None and identifier not in {key.id for key in listed}:
        listed += rows.filter(pk=identifier)
    return [(key.id, f"{key.description} ({key.masked_token})") for key in listed]


def _shown(said: QueryDict) -> dict[str, Any]:
    """Return the filters that are set, for display."""
    filters = {name: str(value) for name, value in said.items() if name not in {"cursor", "orgId", _WITH}}
    return {name: value for name, value in filters.items() if value.strip()}


def _query_with(said: QueryDict, **changes: str) -> str:
    """Return the current query string with these parameters changed."""
    query = QueryDict(mutable=True)
    query.update({**_shown(said), **changes})
    return query.urlencode()


PATHS = [
    path("o/<str:organization_id>/logs", logs, name="logs"),
    path("o/<str:organization_id>/logs/export", export, name="logs_export"),
    path("o/<str:organization_id>/logs/views", views, name="log_views"),
    path("o/<str:organization_id>/logs/<str:log_id>", one_log, name="one_log"),
    path("o/<str:organization_id>/logs/<str:log_id>/media/<int:number>", medium, name="log_medium"),
]
