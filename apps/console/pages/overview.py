"""The overview of an organization: spend by day, errors, latest failures; first steps before the first request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.translation import get_language_bidi, gettext

from apps.console.forms import Form, attempt, do_once
from apps.console.pages.refusals import advice_of
from apps.console.rendering import show
from apps.console.snippets import NO_KEY_HERE, first_model, first_requests
from apps.console.visit import lead_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.keys.access import access_keys
from apps.keys.actions import create_api_key
from apps.logs.access import LogScope
from apps.logs.activity import ActivityScope, ActivityTotals, ActivityWindow, find_days, has_any, window_of
from apps.logs.query import LogFilters, LogRow
from apps.logs.refusals import find_refusals
from apps.logs.retention import visible_to
from apps.logs.search import find_page
from apps.organizations.models import Project

RANGES: Final = (7, 30)
# Chart measures: label, unit, and the field of a model's day.
MEASURES: Final = {
    "cost": (gettext_lazy("Spend"), "USD", "cost"),
    "requests": (gettext_lazy("Requests"), "requests", "requestCount"),
    "tokens": (gettext_lazy("Tokens"), "tokens", "totalTokens"),
}
CHART_TITLES: Final = {
    "cost": gettext_lazy("Spend by model and day (UTC)"),
    "requests": gettext_lazy("Requests by model and day (UTC)"),
    "tokens": gettext_lazy("Tokens by model and day (UTC)"),
}
LATEST_FAILURES: Final = 5
FIRST_KEY: Final = "First key"
_FAILURES: Final = {
    "upstream_error": gettext_lazy("The provider"),
    "client_error": gettext_lazy("The request"),
    "gateway_error": gettext_lazy("The gateway"),
}
Value = Decimal | int | float
# Series with distinct colors; the rest are added up into one more.
MAX_SERIES: Final = 7
OTHERS: Final = "others"


def stack_by_day(days: Sequence[date], values: Mapping[date, Mapping[str, Value]], *, unit: str = "") -> dict[str, Any]:
    """Return a stacked bar chart for `parts/chart.html`: one bar a day, series by name, the largest first, small ones
    added up; `unit` is USD or a word that follows the numbers."""
    totals: dict[str, Value] = {}
    for parts in values.values():
        for name, value in parts.items():
            totals[name] = totals.get(name, 0) + value  # type: ignore[operator]  # all of a chart are of one kind
    largest = sorted(totals, key=lambda name: (-totals[name], name))
    # "Others" with a single member would hide its name.
    shown = largest if len(largest) <= MAX_SERIES + 1 else largest[:MAX_SERIES]
    series: dict[str, list[Value]] = {name: [values.get(day, {}).get(name, 0) for day in days] for name in shown}
    if len(shown) < len(largest):
        rest = largest[len(shown) :]
        series[OTHERS] = [sum(values.get(day, {}).get(name, 0) for name in rest) for day in days]
    return {
        "labels": [day.isoformat() for day in days],
        "unit": unit,
        "series": [
            {"name": gettext(OTHERS) if name == OTHERS else name, "values": [float(value) for value in values]}
            for name, values in series.items()
        ],
    }


@workspace_page()
def overview(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the organization's last days, or the first steps before the first request."""
    organization_id = workspace.organization.id
    if not has_any(organization_id):
        return _show_first_steps(request, workspace, Form())
    wanted = request.GET.get("days", "")
    days = int(wanted) if wanted in {str(one) for one in RANGES} else RANGES[0]
    window = window_of(timezone.now(), days=days)
    scope = ActivityScope(frozenset({organization_id}))
    found = replica.read(lambda using: find_days(scope, window, using=using))
    totals = _totals(found)
    # An organization that uses only free models would see empty cost bars.
    measure = request.GET.get("by", "cost" if totals["cost"] else "requests")
    measure = measure if measure in MEASURES else "cost"
    _, unit, field = MEASURES[measure]
    context: dict[str, Any] = {
        "days": days,
        "query": urlencode({"days": days, "by": measure}),
        "ranges": RANGES,
        "measure": measure,
        "measures": [(name, one[0]) for name, one in MEASURES.items()],
        "chart": stack_by_day(_days_of(window), _by_model(found, field), unit=unit),
        "chart_title": CHART_TITLES[measure],
        "totals": totals,
        "failures": _latest_failures(workspace),
    }
    return show(request, "overview", workspace, entry="overview", **context)


@workspace_page("POST")
def create_first_key(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Create a key with one click, and show it once in the first steps."""

    def create() -> dict[str, Any]:
        project = next(one for one in workspace.projects if one.status == Project.Status.ACTIVE)
        return {"token": create_api_key(user=workspace.user, project_id=project.id, description=FIRST_KEY).token}

    if not any(one.status == Project.Status.ACTIVE for one in workspace.projects):
        return lead_to("projects", workspace.organization.id)
    made, form = attempt(request, lambda: do_once(request, workspace.user, create))
    return _show_first_steps(request, workspace, form, made["token"] if made else None)


@workspace_page()
def first_request(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show whether the first request has arrived; the page polls this part every two seconds.

    Each poll is a separate request, so no connection is held open.
    """
    return show(request, "parts/first_request", workspace, **_first_request_of(workspace))


def _first_request_of(workspace: Workspace) -> dict[str, Any]:
    """Return the first request once it arrived; until then the latest refusal of the last day."""
    organization_id, now = workspace.organization.id, timezone.now()
    if has_any(organization_id):
        scope = LogScope(visible_to([organization_id], now))
        return {"arrived": True, "rows": find_page(scope, LogFilters(), count=1, after=None, ascending=False)}
    refused = find_refusals(organization_id, now - timedelta(days=1))
    if not refused:
        return {}
    latest = max(refused, key=lambda one: one.last_at)
    what, advice, _ = advice_of(latest.status, latest.code)
    return {"refusal": latest, "what": what, "advice": advice}


def _show_first_steps(request: HttpRequest, workspace: Workspace, form: Form, token: str | None = None) -> HttpResponse:
    model = first_model()
    mine = access_keys(workspace.user, project_id=None, everyones=False).keys
    context: dict[str, Any] = {
        "form": form,
        "token": token,
        "has_key": mine.filter(project__organization=workspace.organization).exists(),
        "first_requests": first_requests(settings.PUBLIC_URL, token or NO_KEY_HERE, model),
        "model": model,
        **_first_request_of(workspace),
    }
    return show(request, "first_steps", workspace, entry="overview", status=form.status, **context)


def _days_of(window: ActivityWindow) -> list[date]:
    return [window.first + timedelta(days=index) for index in range((window.last - window.first).days + 1)]


def _by_model(found: Sequence[ActivityTotals], field: str) -> dict[date, dict[str, Decimal]]:
    """Return each model's value for each day, over all its providers."""
    values: dict[date, dict[str, Decimal]] = {}
    for day in found:
        parts = values.setdefault(day.date, {})
        for model in json.loads(day.models, parse_float=Decimal, parse_int=Decimal):
            parts[model["id"]] = parts.get(model["id"], Decimal(0)) + model[field]
    return values


def _totals(found: Sequence[ActivityTotals]) -> dict[str, Any]:
    names = ("request_count", "error_count", "cache_count", "total_tokens", "cost")
    sums = {name: sum((Decimal(day.sums[name]) for day in found), Decimal(0)) for name in names}
    requests = sums["request_count"]
    return {
        **sums,
        "error_share": sums["error_count"] / requests if requests else None,
        "cache_share": sums["cache_count"] / requests if requests else None,
    }


def _latest_failures(workspace: Workspace) -> list[LogRow]:
    """Return the latest failed requests in the log."""
    scope = LogScope(visible_to([workspace.organization.id], timezone.now()))

    def find(using: str) -> list[tuple[str, LogRow]]:
        bounds: dict[str, Any] = {"count": LATEST_FAILURES, "after": None, "ascending": False}
        return [
            (kind, row)
            for kind in _FAILURES
            for row in find_page(scope, LogFilters(unified_finish_reason=kind), **bounds, using=using)
        ]

    rows = [{**row, "failure": _words_of(kind, row["error_details"])} for kind, row in replica.read(find)]
    return sorted(rows, key=lambda row: row["id"], reverse=True)[:LATEST_FAILURES]


def _words_of(kind: str, details: str | None) -> str:
    """Return which side failed, and the stored details."""
    kept = json.loads(details) if details else {}
    how = kept.get("message") or str(kept.get("code") or "").replace("_", " ")
    if not how:
        return _FAILURES[kind]
    # An English text would be torn apart in a page from right to left.
    begin, end = ("\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}") if get_language_bidi() else ("", "")
    return f"{_FAILURES[kind]}: {begin}{how[:200]}{end}"


PATHS = [
    path("o/<str:organization_id>/", overview, name="overview"),
    path("o/<str:organization_id>/first-key", create_first_key, name="create_first_key"),
    path("o/<str:organization_id>/first-request", first_request, name="first_request"),
]
