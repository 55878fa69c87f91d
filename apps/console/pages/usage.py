"""Usage by model, project, API key and tag: a chart of the days, a table, a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.forms import Form, read_query, refused
from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError
from apps.kernel.money import plain
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.kernel.rest.serializers import ChoiceField, QueryIntegerField
from apps.keys.models import ApiKey
from apps.logs.access import access_activity, access_logs, scope_of_user
from apps.logs.activity import KEPT_DAYS, ActivityWindow, kept_since, window_of
from apps.logs.serializers import ActivityQuery, requested_ids_of
from apps.logs.usage import UsageSum, find_tag_usage, find_usage
from apps.logs.views import download

DIMENSIONS: Final = {
    "model": gettext_lazy("Model"),
    "project": gettext_lazy("Project"),
    "key": gettext_lazy("API key"),
    "tag": gettext_lazy("Tag"),
}
MEASURES: Final = {
    "cost": gettext_lazy("Spend"),
    "requests": gettext_lazy("Requests"),
    "tokens": gettext_lazy("Tokens"),
}
CHART_TITLES: Final = {
    ("cost", "model"): gettext_lazy("Spend by day and model"),
    ("cost", "project"): gettext_lazy("Spend by day and project"),
    ("cost", "key"): gettext_lazy("Spend by day and API key"),
    ("requests", "model"): gettext_lazy("Requests by day and model"),
    ("requests", "project"): gettext_lazy("Requests by day and project"),
    ("requests", "key"): gettext_lazy("Requests by day and API key"),
    ("tokens", "model"): gettext_lazy("Tokens by day and model"),
    ("tokens", "project"): gettext_lazy("Tokens by day and project"),
    ("tokens", "key"): gettext_lazy("Tokens by day and API key"),
}
# Series of a chart; the others are added up into one more.
MAX_SERIES = 7
DAYS: Final = (
    ("7", gettext_lazy("7 days")),
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("A year")),
)
_FIELDS: Final = ("date", "name", "id", "requests", "errors", "inputTokens", "outputTokens", "cost")
# Rows of a file that are written at a time.
_PAGE = 500


class UsageQuery(ActivityQuery):
    """Query parameters of the usage page: days and ids as in `GET /activity`, the grouping, and the chart's measure."""

    days = QueryIntegerField(low=1, high=KEPT_DAYS, default=30)
    by = ChoiceField(list(DIMENSIONS), default="model")
    show = ChoiceField(list(MEASURES), default="cost")
    format = ChoiceField(["csv", "jsonl"], default="csv")


@workspace_page()
def usage(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show usage."""
    form, query = Form(_said(request)), _defaults()
    found: list[UsageSum] = []
    is_cut, window = False, window_of(timezone.now(), days=query["days"])
    try:
        query = read_query(request, UsageQuery, orgId=str(workspace.organization.id))
        window = _window(query)
        found, is_cut = _find(workspace, query, window)
    except ApiError as error:
        form = refused(request.GET, error)
    by = query["by"]
    name_of = _names(workspace, by)
    totals = _totals(found)
    return show(
        request,
        "usage",
        workspace,
        entry="usage",
        status=form.status,
        form=form,
        by=by,
        by_words=DIMENSIONS[by],
        tabs=[(name, words, _address(request, by=name), name == by) for name, words in DIMENSIONS.items()],
        measures=list(MEASURES.items()),
        days=DAYS,
        projects=[("", gettext("All projects")), *((one.id, one.name) for one in workspace.projects)],
        teams=[("", gettext("All teams")), *((one.id, one.name) for one in workspace.teams)] if workspace.teams else [],
        rows=[(name_of(one.name), one, _link(by, one.name)) for one in totals],
        sums=_sum("", totals),
        chart=None if by == "tag" or not found else _chart(found, totals, window, query["show"], name_of),
        chart_title=CHART_TITLES.get((query["show"], by), ""),
        is_cut=is_cut,
        outside=_outside(window),
        csv=_address(request, format="csv"),
    )


@workspace_page()
def export(request: HttpRequest, workspace: Workspace) -> HttpResponseBase:
    """Export usage by day and model, project or key, or by tag, as a file."""
    query = read_query(request, UsageQuery, orgId=str(workspace.organization.id))
    found, _ = _find(workspace, query, _window(query))
    name_of = _names(workspace, query["by"])
    records = [
        {
            "date": None if one.date is None else one.date.isoformat(),
            "name": name_of(one.name),
            "id": one.name,
            "requests": one.requests,
            "errors": one.errors,
            "inputTokens": one.input_tokens,
            "outputTokens": one.output_tokens,
            "cost": plain(one.cost),
        }
        for one in found
    ]
    pages: Iterator[list[dict[str, Any]]] = (records[start : start + _PAGE] for start in range(0, len(records), _PAGE))
    return download(f"usage-by-{query['by']}", query["format"], _FIELDS, pages)


def _find(workspace: Workspace, query: dict[str, Any], window: ActivityWindow) -> tuple[list[UsageSum], bool]:
    """Return the requested usage, and whether it is incomplete. Raises NotFound, Forbidden."""
    organization_id = str(workspace.organization.id)
    if query["by"] == "tag":
        logs = access_logs(scope_of_user(workspace.user, timezone.now()), requested_ids_of(query))
        found = replica.read(lambda using: find_tag_usage(logs, window, using=using))
        return found.rows, found.is_cut
    scope = access_activity(
        workspace.user,
        organization_id=organization_id,
        project_id=query.get("project_id"),
        api_key_id=query.get("api_key_id"),
        team_id=query.get("team_id"),
    )
    return replica.read(lambda using: find_usage(scope, window, query["by"], using=using)), False


def _defaults() -> dict[str, Any]:
    return {"days": 30, "by": "model", "show": "cost"}


def _window(query: dict[str, Any]) -> ActivityWindow:
    return window_of(timezone.now(), days=query["days"], first=query.get("from"), last=query.get("to"))


def _outside(window: ActivityWindow) -> dict[str, date]:
    """Return why none of the days can have usage: `today` or `kept_since`; empty if one can."""
    now = timezone.now()
    if window.first > now.astimezone(UTC).date():
        return {"today": now.astimezone(UTC).date()}
    if window.last < kept_since(now):
        return {"kept_since": kept_since(now)}
    return {}


def _names(workspace: Workspace, by: str) -> Callable[[str], str]:
    """Return a function from id to name; deleted projects and keys keep their id."""
    names: dict[str, str] = {}
    if by == "project":
        names = {str(one.id): one.name for one in workspace.projects}
    elif by == "key":
        keys = ApiKey.objects.filter(project__organization=workspace.organization)
        names = {str(key.id): f"{key.description} ({key.masked_token})" for key in keys}
    return lambda name: names.get(name, name)


def _link(by: str, name: str) -> str:
    """Return the query string of the log that shows a row's requests."""
    parameters = {"model": "model", "project": "projectId", "key": "apiKeyId"}
    if by in parameters:
        query = QueryDict(mutable=True)
        query[parameters[by]] = name
        return query.urlencode()
    return ""


def _totals(found: list[UsageSum]) -> list[UsageSum]:
    """Return the usage over all days, most expensive first."""
    by_name: defaultdict[str, list[UsageSum]] = defaultdict(list)
    for one in found:
        by_name[one.name].append(one)
    totals = [_sum(name, rows) for name, rows in by_name.items()]
    return sorted(totals, key=lambda one: (-one.cost, -one.requests, one.name))


def _sum(name: str, rows: list[UsageSum]) -> UsageSum:
    return UsageSum(
        None,
        name,
        sum(one.requests for one in rows),
        sum(one.errors for one in rows),
        sum(one.input_tokens for one in rows),
        sum(one.output_tokens for one in rows),
        sum((one.cost for one in rows), Decimal(0)),
    )


def _chart(
    found: list[UsageSum], totals: list[UsageSum], window: ActivityWindow, measure: str, name_of: Callable[[str], str]
) -> dict[str, Any]:
    """Return the chart of the days: the largest series, and the others as one."""
    days = [window.first + timedelta(days=number) for number in range((window.last - window.first).days + 1)]
    largest = sorted(totals, key=lambda one: -_measured(one, measure))[:MAX_SERIES]
    kept = {one.name for one in largest}
    values: defaultdict[tuple[str | None, date | None], Decimal] = defaultdict(Decimal)
    for one in found:
        values[one.name if one.name in kept else None, one.date] += _measured(one, measure)
    names: list[str | None] = [one.name for one in largest]
    if len(totals) > len(largest):
        names.append(None)
    series = [
        {
            "name": gettext("Others") if name is None else name_of(name),
            "values": [_plain(values[name, day], measure) for day in days],
        }
        for name in names
    ]
    return {
        "labels": [day.isoformat() for day in days],
        "unit": {"cost": "USD", "requests": "requests", "tokens": "tokens"}[measure],
        "series": series,
    }


def _measured(one: UsageSum, measure: str) -> Decimal:
    if measure == "cost":
        return one.cost
    return Decimal(one.requests if measure == "requests" else one.input_tokens + one.output_tokens)


def _plain(value: Decimal, measure: str) -> float | int:
    """Return a value as the chart's number: an integer, or USD."""
    return float(value) if measure == "cost" else int(value)


def _said(request: HttpRequest) -> dict[str, str]:
    return {"days": "30", **{name: str(value) for name, value in request.GET.items() if str(value).strip()}}


def _address(request: HttpRequest, **changes: str) -> str:
    query = QueryDict(mutable=True)
    query.update({**_said(request), **changes})
    query.pop("orgId", None)
    return query.urlencode()


PATHS = [
    path("o/<str:organization_id>/usage", usage, name="usage"),
    path("o/<str:organization_id>/usage/export", export, name="usage_export"),
]
