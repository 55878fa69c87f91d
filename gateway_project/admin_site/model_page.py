"""A model's page for operators: its offers with state, prices and performance, its price history, and the organizations
that use it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.catalog import price_history
from apps.catalog.admin import state_of_offer
from apps.catalog.models import Model, ModelProvider
from apps.kernel.pages import number_formats as as_text
from apps.logs.activity import window_of
from apps.logs.performance import WINDOWS, Performance, ProviderPerformance, read_performance
from apps.logs.usage import OrganizationUsage, find_organization_usage
from apps.organizations.models import Organization
from gateway_project.admin_site import panels
from gateway_project.admin_site.panels import Cell, Figure, Table

# Days of usage, organizations in its table, and price changes with how far back they go.
USAGE_DAYS, MAX_ORGANIZATIONS, MAX_CHANGES = 30, 20, 50
# Uptime and speed are of the same period as the usage, unless another one is chosen.
_USUAL: Final = f"{USAGE_DAYS}d"
_PRICE_HISTORY: Final = timedelta(days=365)
# An uptime below which a cell is marked.
_GOOD: Final = 0.95


def model_page(request: HttpRequest, model_id: str) -> HttpResponse:
    """Show one model. Tables that the operator may not see are left out."""
    may = request.user.has_perm
    if not may("catalog.view_model"):
        raise PermissionDenied
    model = Model.objects.filter(pk=model_id).first()
    if model is None:
        raise Http404
    window, now = WINDOWS.get(request.GET.get("window", ""), WINDOWS[_USUAL]), datetime.now(UTC)
    context: dict[str, Any] = {"model": model, "window": window, "windows": WINDOWS.values(), "tables": []}
    if may("catalog.view_modelprovider"):
        read = partial(read_performance, [model.pk], window, now)
        found = panels.ask_replica(lambda using: read(using).get(model.pk, {}))
        context["tables"].append((f"Offers with uptime and speed of {window.title}", _offers(model, found)))
        context["tables"].append((f"Price history of a year, at most {MAX_CHANGES} changes", _prices(model, now)))
    if may("logs.view_activityday"):
        activity = window_of(now, days=USAGE_DAYS)
        ask = partial(find_organization_usage, model.pk, activity, MAX_ORGANIZATIONS)
        usage = panels.ask_replica(lambda using: ask(using=using))
        links = may("organizations.view_organization")
        context["figures"] = [] if usage is None else _figures(usage)
        context["tables"].append((f"Organizations by spend, {USAGE_DAYS} days", _organizations(usage, links=links)))
    page = {**admin.site.each_context(request), "title": f"{model.name} ({model.pk})", "usage_days": USAGE_DAYS}
    return TemplateResponse(request, "admin/catalog/model.html", page | context)


def _offers(model: Model, found: Mapping[str, ProviderPerformance] | None) -> Table:
    """Return the offers, also those that are not served; without figures where the database did not give them."""
    rows = []
    offers = ModelProvider.objects.filter(model=model).select_related("model", "provider").order_by("provider_id")
    for offer in offers:
        card, state = price_history.card_of(offer), state_of_offer(offer)
        measured = None if found is None else found.get(offer.provider_id, ProviderPerformance()).total
        rows.append(
            [
                Cell(offer.provider_id, reverse("admin:catalog_modelprovider_change", args=[offer.pk])),
                Cell(state, tone="good" if state == "Active" else "bad"),
                *(Cell(f"${card[name]}" if name in card else as_text.NOTHING) for name in ("input", "output")),
                *_measured(measured),
            ]
        )
    headers = [
        "Provider",
        "State",
        "Input (USD/M)",
        "Output (USD/M)",
        "Calls",
        "Uptime",
        "First token",
        "95%",
        "Tokens/s",
    ]
    return Table("Offers", headers, rows, "No provider offers this model.")


def _measured(one: Performance | None) -> list[Cell]:
    if one is None:
        return [Cell(as_text.NOTHING)] * 5
    uptime = one.uptime
    return [
        Cell(as_text.count(one.succeeded + one.failed)),
        Cell(as_text.NOTHING)
        if uptime is None
        else Cell(as_text.percent(100 * uptime), tone="bad" if uptime < _GOOD else ""),
        Cell(as_text.milliseconds(one.first_token)),
        Cell(as_text.milliseconds(one.slow_first_token)),
        Cell(as_text.NOTHING if one.speed is None else as_text.count(one.speed)),
    ]


def _prices(model: Model, now: datetime) -> Table:
    rows = [
        [
            Cell(f"{change.created_at:%Y-%m-%d %H:%M}"),
            Cell(change.provider),
            Cell(step.name),
            Cell(step.old or as_text.NOTHING),
            Cell(step.new or as_text.NOTHING),
            Cell(change.author),
        ]
        for change in price_history.find_model_changes([model.pk], now - _PRICE_HISTORY, MAX_CHANGES)
        for step in price_history.steps_of(change)
    ]
    headers = ["From (UTC)", "Provider", "Price", "Old (USD)", "New (USD)", "By"]
    return Table("Price history", headers, rows, "No price has changed.", words=True)


def _figures(usage: OrganizationUsage) -> list[Figure]:
    days = f"in {USAGE_DAYS} days"
    return [
        Figure("Organizations", as_text.count(usage.organizations), f"with requests {days}"),
        Figure("Requests", as_text.count(usage.requests), days),
        Figure("Error share", as_text.share(usage.errors, usage.requests), f"{as_text.count(usage.errors)} failed"),
        Figure("Spend", as_text.usd(usage.cost), days),
    ]


def _organizations(usage: OrganizationUsage | None, *, links: bool) -> Table | None:
    if usage is None:
        return None
    names = dict(Organization.objects.filter(pk__in=[one.id for one in usage.largest]).values_list("pk", "name"))
    rows = [
        [
            Cell(names.get(one.id) or str(one.id), _page_of(one.id) if links and one.id in names else ""),
            Cell(as_text.count(one.requests)),
            Cell(as_text.share(one.errors, one.requests), tone="bad" if one.errors > 0.05 * one.requests else ""),
            Cell(as_text.short_count(one.input_tokens)),
            Cell(as_text.short_count(one.output_tokens)),
            Cell(as_text.usd(one.cost)),
        ]
        for one in usage.largest
    ]
    headers = ["Organization", "Requests", "Errors", "Tokens in", "Tokens out", "Spend"]
    return Table("Organizations", headers, rows, "No organization has used this model.")


def _page_of(organization_id: UUID) -> str:
    return reverse("admin:organizations_organization_change", args=[organization_id])
