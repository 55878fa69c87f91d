"""The dashboard: the first page at `/admin/`. A panel whose store does not answer says so.

Which panels an operator sees depends on the operator's permissions; `traffic_panels` and `system_panels` make them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from apps.kernel.pages import number_formats as as_text
from apps.logs.traffic_report import WINDOWS, TrafficReport, TrafficWindow, read_report
from gateway_project.admin_site import system_panels, traffic_panels
from gateway_project.admin_site.traffic_panels import Table

_USUAL = "24h"


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the page's context with the panels that this operator may see."""
    window = WINDOWS.get(request.GET.get("window", ""), WINDOWS[_USUAL])
    now, may = timezone.now(), request.user.has_perm
    context |= {"title": "Dashboard", "now": as_text.moment(now), "windows": WINDOWS.values(), "window": window}
    if may("logs.view_trafficslot"):
        report: TrafficReport | None = system_panels.ask_replica(partial(read_report, window, now))
        pages = {"requestlog": "logs.view_requestlog", "organization": "organizations.view_organization"}
        links = frozenset(page for page, permission in pages.items() if may(permission))
        context |= {
            "shows_traffic": True,
            "traffic": system_panels.ask_database(partial(_traffic, report, window, links)),
            "board": system_panels.ask(partial(system_panels.provider_board, report)),
            "board_minutes": system_panels.BOARD_MINUTES,
        }
    tables: dict[str, tuple[str, Callable[[], Table | None]]] = {
        "Stores": ("gateway.view_reconciliation", system_panels.stores),
        "Scheduled tasks": ("gateway.view_reconciliation", system_panels.tasks),
        "Catalogue": (
            "catalog.view_catalogproposal",
            partial(system_panels.ask_database, system_panels.catalog),
        ),
        "Low balances": (
            "organizations.view_organization",
            partial(system_panels.ask_database, system_panels.low_balances),
        ),
    }
    context["tables"] = [
        (title, system_panels.ask(read)) for title, (permission, read) in tables.items() if may(permission)
    ]
    return context


def _traffic(report: TrafficReport | None, window: TrafficWindow, links: frozenset[str]) -> dict[str, Any] | None:
    if report is None:
        return None
    since = report.counted_since
    return {
        "first": as_text.moment(report.first),
        "counted_since": as_text.moment(since) if since is not None and since > report.first else "",
        "empty": not report.total.requests,
        "figures": traffic_panels.figures_of(report),
        "charts": traffic_panels.charts_of(report, window),
        "tables": traffic_panels.top_tables(report, window, links),
    }
