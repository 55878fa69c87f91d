"""URLs of the admin: the framework's, without the pages that no document names; and the dashboard at `/admin/`.

Left out: the change of one's own password, which asks for no second factor and counts no try (the console's does);
redirects to a row's page on the site, and from addresses of old. The list of an app's tables is the dashboard. A panel
of the dashboard whose store does not answer says so; which panels an operator sees depends on the operator's
permissions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final

from django.conf import settings
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, path, reverse
from django.utils import timezone

from apps.kernel.pages import number_formats as as_text
from apps.logs.traffic import WINDOWS, TrafficReport, TrafficWindow, read_report
from apps.organizations.credentials import two_factor
from apps.organizations.models import User
from gateway_project.admin_site import panels, search
from gateway_project.admin_site.model_page import model_page
from gateway_project.admin_site.panels import Table

_USUAL = "24h"


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the page's context with the panels that this operator may see."""
    window = WINDOWS.get(request.GET.get("window", ""), WINDOWS[_USUAL])
    now, may = timezone.now(), request.user.has_perm
    context |= {"title": "Dashboard", "now": as_text.moment(now), "windows": WINDOWS.values(), "window": window}
    if may("logs.view_trafficslot"):
        report: TrafficReport | None = panels.ask_replica(partial(read_report, window, now))
        pages = {"requestlog": "logs.view_requestlog", "organization": "organizations.view_organization"}
        links = frozenset(page for page, permission in pages.items() if may(permission))
        context |= {
            "shows_traffic": True,
            "traffic": panels.ask_database(partial(_traffic, report, window, links)),
            "board": panels.ask(partial(panels.provider_board, report)),
            "board_minutes": panels.BOARD_MINUTES,
        }
    tables: dict[str, tuple[str, Callable[[], Table | None]]] = {
        "Stores": ("gateway.view_reconciliation", panels.stores),
        "Scheduled tasks": ("gateway.view_reconciliation", panels.tasks),
        "Catalog": (
            "catalog.view_catalogproposal",
            partial(panels.ask_database, panels.catalog),
        ),
        "Low balances": (
            "organizations.view_organization",
            partial(panels.ask_database, panels.low_balances),
        ),
    }
    context["tables"] = [(title, panels.ask(read)) for title, (permission, read) in tables.items() if may(permission)]
    return context


def _traffic(report: TrafficReport | None, window: TrafficWindow, links: frozenset[str]) -> dict[str, Any] | None:
    if report is None:
        return None
    since = report.counted_since
    return {
        "first": as_text.moment(report.first),
        "counted_since": as_text.moment(since) if since is not None and since > report.first else "",
        "empty": not report.total.requests,
        "figures": panels.figures_of(report),
        "charts": panels.charts_of(report, window),
        "tables": panels.top_tables(report, window, links),
    }


_LEFT_OUT: Final = frozenset({"password_change", "password_change_done", "view_on_site"})
# Pages for an operator without a second factor: signing in and out, and the one that adds it.
_SIGN_IN_METHODS: Final = "organizations_twofactor_mine"
_BEFORE_SECOND_FACTOR: Final = frozenset({"login", "logout", "jsi18n", _SIGN_IN_METHODS})
# Breadcrumbs lead there. The start page has what the framework would list on it.
_APP_LIST: Final = "app_list"
_OLD_ADDRESS: Final = "<path:object_id>/"


def admin_urls() -> tuple[list[Any], str, str]:
    """Load the apps' pages; return the patterns, app name and namespace to mount."""
    admin.autodiscover()
    patterns, app_name, namespace = admin.site.urls
    own = [
        path("find/", admin.site.admin_view(search.search_page), name="find"),
        path("models/<path:model_id>/", admin.site.admin_view(model_page), name="model"),
    ]
    return _kept([*own, *patterns]), app_name, namespace


def _kept(patterns: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for one in patterns:
        if isinstance(one, URLResolver):
            kept.append(URLResolver(one.pattern, _kept(one.url_patterns), one.default_kwargs))
        elif one.name == _APP_LIST:
            start: Any = admin.site.admin_view(_lead_to_start)
            kept.append(URLPattern(one.pattern, start, one.default_args, one.name))
        elif one.name == "search":
            results: Any = admin.site.admin_view(search.search_results)
            kept.append(URLPattern(one.pattern, _after_second_factor(results), one.default_args, one.name))
        elif one.name not in _LEFT_OUT and str(one.pattern) != _OLD_ADDRESS:
            view: Any = one.callback if one.name in _BEFORE_SECOND_FACTOR else _after_second_factor(one.callback)
            kept.append(URLPattern(one.pattern, view, one.default_args, one.name))
    return kept


def _after_second_factor(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return the view for operators with a second factor; others are led to the page that adds one."""

    @wraps(view)
    def serve(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user
        if settings.OPERATOR_SECOND_FACTOR and isinstance(user, User) and user.is_staff and not two_factor.is_on(user):
            messages.warning(request, "Add a passkey or an authenticator app first: operators need a second factor.")
            return HttpResponseRedirect(reverse(f"admin:{_SIGN_IN_METHODS}"))
        return view(request, *args, **kwargs)

    return serve


def _lead_to_start(request: HttpRequest, **names: Any) -> HttpResponseBase:
    return HttpResponseRedirect(reverse("admin:index"))
