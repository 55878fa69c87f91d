"""Panels of the dashboard: the state of the system, and the traffic of all organizations from the roll-up.

Each query has a time limit. A store that does not answer is shown as unreachable and does not fail the page.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import structlog
from django.contrib.admin.utils import quote
from django.db import DatabaseError, connections, transaction
from django.urls import reverse
from django.utils import timezone
from redis.exceptions import RedisError

from apps.catalog import catalog_cache
from apps.catalog.models import CatalogProposal, PriceListReading, Provider
from apps.catalog.proposals import MAX_AGE_DAYS
from apps.gateway.routing.circuit_breaker import WINDOW_SECONDS, CircuitBreakers, ProviderStats
from apps.kernel.ids import find_id
from apps.kernel.pages import number_formats as as_text
from apps.kernel.postgres import replica
from apps.kernel.postgres.database import release_connection
from apps.logs.traffic import Traffic, TrafficReport, TrafficWindow, percentile_of, spent_lately
from apps.organizations.models import Organization
from gateway_project.diagnosis import registry
from gateway_project.diagnosis.check import Check, Diagnosis, Stage, State
from gateway_project.observability import task_metrics

log = structlog.get_logger(__name__)
Found = TypeVar("Found")

# Milliseconds that the database may take for one panel.
_STATEMENT_LIMIT = 2_000
# A balance is low if it lasts for fewer days than this at the last day's spending; and the number of rows shown.
_LOW_DAYS, _MAX_LOW = 3, 10
_NAMES = {"redis": "Valkey", "database": "PostgreSQL", "queue": "Outbox", "bills": "Providers' bills"}
_LINKS = {
    "reconciliation": "admin:gateway_reconciliation_changelist",
    "clearing": "admin:gateway_clearingaccount_changelist",
    "bills": "admin:provider_bills_billcomparison_changelist",
}
_AWAY = "Not reachable"


def ask(panel: Callable[[], Found]) -> Found | None:
    """Return a panel's content; None if a store does not answer or takes too long."""
    try:
        return panel()
    except (DatabaseError, RedisError, OSError) as error:
        log.warning("dashboard.panel_failed", panel=getattr(panel, "__name__", ""), error=type(error).__name__)
        return None


def ask_database(panel: Callable[[], Found]) -> Found | None:
    """Return a panel's content from the database; None if a statement takes more than two seconds."""
    return ask(partial(_bounded, lambda _: panel(), replica.PRIMARY))


def ask_replica(panel: Callable[[str], Found]) -> Found | None:
    """Return what a panel reads as `ask_database` does, by the name of a replica's connection where one is fit."""
    return ask(partial(replica.read, partial(_bounded, panel)))


def _bounded(panel: Callable[[str], Found], using: str) -> Found:
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {_STATEMENT_LIMIT}")
        return panel(using)


def stores() -> Table:
    """Return whether each store answers, how many records wait for settlement, and the last reconciliation."""
    release_connection()
    found = registry.examine_health()
    for check in registry.checks_of(Stage.DASHBOARD):
        # A store may have gone since.
        read = ask_database if check.needs == "database" else ask
        found += read(partial(_read_findings, check)) or [Diagnosis.error(check.name, _AWAY)]
    return Table("Stores", ["Store", "State"], [_row(one) for one in found], words=True)


def _read_findings(check: Check) -> list[Diagnosis]:
    return list(check.find())


def _row(finding: Diagnosis) -> list[Cell]:
    link = reverse(_LINKS[finding.subject]) if finding.subject in _LINKS else ""
    words = finding.message[:1].upper() + finding.message[1:] + (f" → {finding.fix}" if finding.fix else "")
    tone = "good" if finding.state is State.OK else "bad"
    return [Cell(_NAMES.get(finding.subject, finding.subject.capitalize()), link), Cell(words, tone=tone)]


def tasks() -> Table:
    """Return how long ago each scheduled task succeeded, the late ones first."""
    rows = []
    for one in sorted(task_metrics.read_states(), key=lambda state: not state.late):
        ago = f"{as_text.seconds(one.age)} ago" if one.succeeded else f"not yet, for {as_text.seconds(one.age)}"
        words = one.name.replace(".", ": ").replace("_", " ").capitalize()
        rows.append(
            [
                Cell(words),
                Cell(ago, tone="bad" if one.late else ""),
                Cell(as_text.count(one.runs)),
                Cell(as_text.count(one.failures), tone="bad" if one.failures else ""),
            ]
        )
    empty = "No task has been scheduled yet. Start the worker and the scheduler (`Procfile`: worker, beat)."
    return Table("Scheduled tasks", ["Task", "Last success", "Runs", "Failures"], rows, empty)


def provider_board(report: TrafficReport | None) -> list[dict[str, object]]:
    """Return each provider that was asked lately, or in the window: its last minutes, open circuits, bars of uptime.

    Raises RedisError.
    """
    release_connection()
    breakers = CircuitBreakers()
    breakers.sync()
    known: dict[str, list[tuple[str, ProviderStats]]] = defaultdict(list)
    for mapping in breakers.mappings():
        provider, _, model = mapping.partition("/")
        known[provider].append((model, breakers.stats(mapping)))
    bars = report.providers if report is not None else {}
    names = {identifier: one.name for identifier, one in catalog_cache.current().providers.items()}
    switched_off = set(Provider.objects.filter(active=False).values_list("id", flat=True))
    board = []
    for provider in sorted(known.keys() | bars.keys()):
        stats = known.get(provider, [])
        asked = sum(one.requests for _, one in stats)
        succeeded = sum(one.requests * one.uptime / 100 for _, one in stats)
        latencies = [one.p95_latency for _, one in stats if one.p95_latency is not None]
        open_circuits = [model for model, one in stats if one.open]
        board.append(
            {
                "id": provider,
                "name": names.get(provider, provider),
                "href": reverse("admin:catalog_provider_change", args=[provider]) if provider in names else "",
                "asked": as_text.count(asked),
                "uptime": as_text.share(succeeded, asked),
                "down": asked > 0 and succeeded < 0.95 * asked,
                "latency": as_text.milliseconds(max(latencies, default=None)),
                "open": ", ".join(open_circuits),
                "off": provider in switched_off,
                "tracker": _tracker(report, bars.get(provider, {})),
            }
        )
    return board


BOARD_MINUTES = WINDOW_SECONDS // 60


def _tracker(report: TrafficReport | None, bars: dict[datetime, Traffic]) -> list[dict[str, str]]:
    if report is None:
        return []
    cells = []
    for moment, _ in report.bars:
        one = bars.get(moment, Traffic())
        failed = one.errors / one.requests if one.requests else 0.0
        tone = "none" if not one.requests else "good" if failed < 0.01 else "fair" if failed < 0.05 else "bad"
        words = (
            f"{as_text.count(one.requests)} requests, {as_text.count(one.errors)} failed"
            if one.requests
            else "no requests"
        )
        cells.append({"tone": tone, "title": f"{as_text.moment(moment)} UTC: {words}"})
    return cells


def catalog() -> Table:
    """Return the proposals that wait, those on which price lists disagree, refused lists, and providers whose prices
    were last checked long ago."""
    proposals = reverse("admin:catalog_catalogproposal_changelist") + "?state=waiting"
    waiting = CatalogProposal.objects.filter(state=CatalogProposal.State.WAITING)
    disputed = waiting.filter(disputed=True).count()
    rows = [
        [Cell("Proposals waiting", proposals), Cell(as_text.count(waiting.count()))],
        [
            Cell("Price lists disagree", proposals + "&disputed=1"),
            Cell(as_text.count(disputed), tone="bad" if disputed else ""),
        ],
    ]
    for one in PriceListReading.objects.order_by("source"):
        link = reverse("admin:catalog_pricelistreading_change", args=[quote(one.source)])
        words = one.problem or f"read {as_text.moment(one.read_at)}"
        rows.append([Cell(one.source, link), Cell(words, tone="bad" if one.problem else "good")])
    oldest = timezone.now().date() - timedelta(days=MAX_AGE_DAYS)
    for provider in Provider.objects.filter(active=True, checked_on__lt=oldest).order_by("checked_on", "id"):
        if not provider.facts.get("development_only"):
            link = reverse("admin:catalog_provider_change", args=[provider.pk])
            rows.append([Cell(provider.name, link), Cell(f"prices checked {provider.checked_on}; old", tone="bad")])
    return Table("Catalog", ["Subject", "State"], rows, words=True)


def low_balances() -> Table:
    """Return the organizations whose credits end soonest, at the pace of the last day."""
    spent = spent_lately(timezone.now() - timedelta(days=1))
    ids = [identifier for name in spent if (identifier := find_id(name)) is not None]
    lasting: list[tuple[Decimal, Organization, Decimal]] = []
    for one in Organization.objects.filter(pk__in=ids, status=Organization.Status.ACTIVE):
        pace = spent[str(one.pk)]
        if one.credits < _LOW_DAYS * pace:
            lasting.append((max(one.credits, Decimal(0)) / pace, one, pace))
    rows = [
        [
            Cell(one.name, reverse("admin:organizations_organization_change", args=[one.pk])),
            Cell(as_text.usd(one.credits), tone="bad" if one.credits <= 0 else ""),
            Cell(as_text.usd(pace)),
            Cell(as_text.seconds(float(days) * 86_400) if days else "used up", tone="bad" if days < 1 else ""),
        ]
        for days, one, pace in sorted(lasting, key=lambda entry: entry[0])[:_MAX_LOW]
    ]
    return Table(
        "Low balances",
        ["Organization", "Credits", "Spent in 24 h", "Lasts for"],
        rows,
        f"Every organization that spends has credits for {_LOW_DAYS} days or more.",
    )


# How a chart names its lines and bars, and what a table's cell says of a bar.
_ACCENT, _ALARM, _QUIET = "var(--color-primary-600)", "#dc2626", "#64748b"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number at the top: `hint` explains it, `alarming` marks it as a problem."""

    title: str
    value: str
    hint: str = ""
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or the bars of one colour, of a chart."""

    title: str
    color: str
    value: Callable[[Traffic], float | None]
    text: Callable[[Traffic], str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of Chart.js (`data` and `options` are JSON), and the same numbers as a table."""

    title: str
    unit: str
    kind: str
    data: str
    options: str
    headers: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; `href` links to its subject."""

    text: str
    href: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the dashboard; the first column names the row, the others are numbers unless `words`."""

    title: str
    headers: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    empty: str = "Nothing yet"
    words: bool = False


def figures_of(report: TrafficReport) -> list[Figure]:
    """Return the numbers of the whole window."""
    total = report.total
    duration = [as_text.milliseconds(percentile_of(total.durations, one)) for one in (0.5, 0.95)]
    first_token = [as_text.milliseconds(percentile_of(total.first_tokens, one)) for one in (0.5, 0.95)]
    streams = sum(total.first_tokens.values())
    return [
        Figure("Requests", as_text.count(total.requests), "all accepted requests"),
        Figure(
            "Error share",
            as_text.share(total.errors, total.requests),
            f"{as_text.count(total.errors)} ended with an error",
            total.errors > 0.05 * total.requests > 0,
        ),
        Figure("Spend", as_text.usd(total.cost), f"{as_text.usd(total.credits_cost)} of it paid with credits"),
        Figure(
            "Tokens",
            as_text.short_count(total.input_tokens + total.output_tokens),
            f"{as_text.short_count(total.input_tokens)} in, {as_text.short_count(total.output_tokens)} out",
        ),
        Figure(
            "Cache share",
            as_text.share(total.cache_hits, total.requests),
            f"of requests; of input tokens {as_text.share(total.cached_tokens, total.input_tokens)}, by providers",
        ),
        Figure("Latency", duration[0], f"median; 95% within {duration[1]}"),
        Figure(
            "First token", first_token[0], f"median of {as_text.count(streams)} streams; 95% within {first_token[1]}"
        ),
    ]


def charts_of(report: TrafficReport, window: TrafficWindow) -> list[Chart]:
    """Return the charts: requests, spend, latency and time to first token over time."""
    return [
        _chart(
            report,
            window,
            "Requests",
            "requests",
            "bar",
            Line("Succeeded", _ACCENT, _succeeded, lambda one: as_text.count(_succeeded(one))),
            Line("Failed", _ALARM, lambda one: one.errors, lambda one: as_text.count(one.errors)),
        ),
        _chart(
            report,
            window,
            "Spend",
            "USD",
            "bar",
            Line("Spend", _ACCENT, lambda one: float(one.cost), lambda one: as_text.usd(one.cost)),
        ),
        _chart(report, window, "Latency", "seconds", "line", *_percentiles("durations")),
        _chart(report, window, "Time to first token", "seconds", "line", *_percentiles("first_tokens")),
    ]


def top_tables(report: TrafficReport, window: TrafficWindow, links: frozenset[str]) -> list[Table]:
    """Return the top lists; names link to the request log and organizations if `links` has these tables."""
    names = _names_of(report)
    return [
        Table("Models", _TOP_HEADERS, _top_rows(report, "model", window, links, {})),
        Table("Providers", _TOP_HEADERS, _top_rows(report, "provider", window, links, {})),
        Table("Organizations", _TOP_HEADERS, _top_rows(report, "organization", window, links, names)),
        Table(
            "How requests ended",
            ["Ending", "Requests", "Share"],
            [
                [
                    Cell(name.replace("_", " "), _log_url("ended", name, window) if "requestlog" in links else ""),
                    Cell(as_text.count(one.requests)),
                    Cell(as_text.share(one.requests, report.total.requests)),
                ]
                for name, one in report.top["end"]
            ],
        ),
    ]


_TOP_HEADERS = ["Name", "Requests", "Errors", "Tokens", "Spend"]


def _top_rows(
    report: TrafficReport, aspect: str, window: TrafficWindow, links: frozenset[str], names: dict[str, str]
) -> list[list[Cell]]:
    rows = []
    for name, one in report.top[aspect]:
        href = _log_url(aspect, name, window) if "requestlog" in links else ""
        requests = Cell(as_text.count(one.requests), href)
        if aspect == "organization":
            known = name in names and "organization" in links
            href = reverse("admin:organizations_organization_change", args=[name]) if known else ""
        rows.append(
            [
                Cell(names.get(name, name), href),
                requests,
                Cell(as_text.share(one.errors, one.requests), tone="bad" if one.errors > 0.05 * one.requests else ""),
                Cell(as_text.short_count(one.input_tokens + one.output_tokens)),
                Cell(as_text.usd(one.cost)),
            ]
        )
    return rows


def _log_url(aspect: str, name: str, window: TrafficWindow) -> str:
    return f"{reverse('admin:logs_requestlog_changelist')}?{urlencode({aspect: name, 'time': window.name})}"


def _names_of(report: TrafficReport) -> dict[str, str]:
    ids = [identifier for name, _ in report.top["organization"] if (identifier := find_id(name)) is not None]
    return {str(pk): name for pk, name in Organization.objects.filter(pk__in=ids).values_list("pk", "name")}


def _succeeded(one: Traffic) -> int:
    return one.requests - one.errors


def _percentiles(steps: str) -> list[Line]:
    def line(title: str, color: str, wanted: float) -> Line:
        def found(one: Traffic) -> float | None:
            return percentile_of(getattr(one, steps), wanted)

        def in_seconds(one: Traffic) -> float | None:
            milliseconds = found(one)
            return None if milliseconds is None else round(milliseconds / 1000, 3)

        return Line(title, color, in_seconds, lambda one: as_text.milliseconds(found(one)))

    return [line("Median", _ACCENT, 0.5), line("95%", _QUIET, 0.95)]


def _chart(report: TrafficReport, window: TrafficWindow, title: str, unit: str, kind: str, *lines: Line) -> Chart:
    labels = [_label(moment, window) for moment, _ in report.bars]
    datasets = [
        {
            "label": f"{line.title} ({unit})",
            "data": [line.value(one) for _, one in report.bars],
            "backgroundColor": line.color,
            "borderColor": line.color,
        }
        for line in lines
    ]
    rows = [
        [label, *(line.text(one) for line in lines)]
        for label, (_, one) in reversed(list(zip(labels, report.bars, strict=True)))
    ]
    data = json.dumps({"labels": labels, "datasets": datasets})
    options = json.dumps(_options(unit, stacked=kind == "bar", legend=len(lines) > 1))
    return Chart(title, unit, kind, data, options, ["From (UTC)", *(line.title for line in lines)], rows)


def _label(moment: datetime, window: TrafficWindow) -> str:
    return f"{moment:%H:%M}" if window.bar.total_seconds() <= 3600 else as_text.moment(moment)


def _options(unit: str, *, stacked: bool, legend: bool) -> dict[str, Any]:
    """Return Chart.js's options: hover anywhere over a bar, values with their unit, an axis that begins at 0."""
    return {
        "animation": False,
        "responsive": True,
        "maintainAspectRatio": False,
        "interaction": {"mode": "index", "intersect": False},
        "plugins": {"legend": {"display": legend, "align": "end", "labels": {"boxHeight": 6, "boxWidth": 6}}},
        "elements": {"line": {"borderWidth": 2, "tension": 0.2}, "point": {"radius": 2, "hitRadius": 8}},
        "spanGaps": True,
        "scales": {
            "x": {"stacked": stacked, "grid": {"display": False}, "ticks": {"maxRotation": 0, "autoSkipPadding": 16}},
            "y": {
                "stacked": stacked,
                "beginAtZero": True,
                "title": {"display": True, "text": unit},
                # A ten-thousandth of a dollar is written out, not as 1E-4.
                "ticks": {"maxTicksLimit": 5, "format": {"notation": "standard"}},
            },
        },
    }
