"""Traffic panels of the dashboard: figures, charts with their tables, and top lists, from the roll-up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from apps.kernel.ids import find_id
from apps.kernel.pages import number_formats as as_text
from apps.logs.traffic_report import Traffic, TrafficReport, TrafficWindow, percentile_of
from apps.organizations.models import Organization

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
