"""The page of a model, and the comparison of several: for everybody, and with an organization's own usage.

The pages for everybody depend on the address alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html

from apps.catalog.offers import Offer
from apps.console.browser_session import BrowserSession
from apps.console.model_cards import FEATURES, ModelCard, current_cards, find_card, price_rows
from apps.console.model_figures import (
    BestFigures,
    OwnUsage,
    best_figures,
    own_usage,
    provider_figures,
    read_figures,
    read_price_history,
    usage_by_day,
)
from apps.console.pages.overview import stack_by_day
from apps.console.rendering import show
from apps.console.snippets import snippets_for
from apps.console.templatetags.console import number
from apps.console.visit import public_page, signed_in_page, workspace_page
from apps.console.workspace import Workspace, organizations_of
from apps.gateway.routing.availability import find_obstacle
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.kernel.errors import NotFound
from apps.kernel.postgres import replica
from apps.kernel.rest.errors import show_error
from apps.logs.activity import window_of
from apps.logs.performance import WINDOWS
from apps.logs.traffic_report import TrafficWindow
from apps.logs.usage import ModelUsage, find_model_usage

# Models that are compared side by side.
MAX_COMPARED: Final = 4
# Days of an organization's own usage.
USAGE_DAYS: Final = 30
_DEFAULT_WINDOW: Final = "7d"
# Characters of a model's name.
_MAX_NAME: Final = 255
# The path of the comparison for everybody.
_COMPARISON: Final = "/models/compare"
_NO_MODEL: Final = "There is no such model, or no provider serves it any more"


@public_page()
def model(request: HttpRequest, model_id: str) -> HttpResponse:
    """Show one model: its features, providers, prices, performance, price history and example requests."""
    card = find_card(model_id[:_MAX_NAME])
    if card is None:
        # Programs may use the same path for another resource.
        return show_error(request, NotFound(_NO_MODEL))
    return _show_model(request, card, None)


@workspace_page()
def own_model(request: HttpRequest, workspace: Workspace, model_id: str) -> HttpResponse:
    """Show the page of a model with the organization's own usage of it."""
    card = find_card(model_id[:_MAX_NAME])
    if card is None:
        raise NotFound(_NO_MODEL)
    return _show_model(request, card, workspace)


@public_page()
def compare(request: HttpRequest) -> HttpResponse:
    """Show up to four models side by side: `model`, repeated."""
    return _show_comparison(request, None)


@workspace_page()
def own_comparison(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show up to four models side by side with the organization's own usage of them."""
    return _show_comparison(request, workspace)


@signed_in_page()
def enter(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Redirect to the pages of models of the visitor's first organization: of one `model`, or the comparison."""
    organizations = organizations_of(visitor.user)
    if not organizations:
        return redirect("console:home")
    names = {"organization_id": organizations[0].id}
    models = request.GET.getlist("model")[:MAX_COMPARED]
    if len(models) == 1 and find_card(models[0][:_MAX_NAME]) is not None:
        return redirect(reverse("console:own_model", kwargs={**names, "model_id": models[0]}))
    query = QueryDict(mutable=True)
    query.setlist("model", [name[:_MAX_NAME] for name in models])
    return redirect(f"{reverse('console:own_comparison', kwargs=names)}?{query.urlencode()}")


def _show_model(request: HttpRequest, card: ModelCard, workspace: Workspace | None) -> HttpResponse:
    now, window = datetime.now(UTC), _window(request)
    names = {offer.provider.id: offer.provider.name for offer in card.offers}
    found = read_figures([card.model.id], window, now)
    rows = [] if workspace is None else _read_usage(workspace, [card], now)
    return show(
        request,
        "one_model",
        workspace,
        frame=_frame(workspace),
        open_page="models",
        card=card,
        offers=[
            _offer(one) | {"others": () if one is offer else one.own_names[1:]}
            for offer in card.offers
            for one in (offer, *offer.editions)
            if one.is_live(now.date())
        ],
        snippets=snippets_for(card.model.mode, card.model.id, settings.PUBLIC_URL),
        facts=_facts(card),
        is_talking=card.model.mode in {"chat", "image_generation"},
        figures=None if found is None else provider_figures(card, found.get(card.model.id, {}), window, now),
        window=window,
        windows=[(one.name, one.title) for one in WINDOWS.values()],
        history=read_price_history(card.model.id, names, now),
        usage=own_usage(card, rows),
        usage_chart=_usage_chart(rows, names, now),
        usage_days=USAGE_DAYS,
        compare_path=_compare_path(workspace, [card.model.id]),
    )


@dataclass(slots=True)
class ComparedModel:
    """A column of the comparison; without a card, `name` is no model."""

    name: str
    card: ModelCard | None = None
    path: str = ""
    best: BestFigures | None = None
    usage: OwnUsage = field(default_factory=OwnUsage)


def _show_comparison(request: HttpRequest, workspace: Workspace | None) -> HttpResponse:
    now, window = datetime.now(UTC), _window(request)
    stated = dict.fromkeys(name.strip()[:_MAX_NAME] for name in request.GET.getlist("model"))
    named = [name for name in stated if name][:MAX_COMPARED]
    columns = [ComparedModel(name, find_card(name)) for name in named]
    cards = [one.card for one in columns if one.card is not None]
    found = read_figures([card.model.id for card in cards], window, now) if cards else {}
    rows = [] if workspace is None or not cards else _read_usage(workspace, cards, now)
    for column in columns:
        if (card := column.card) is not None:
            column.path = _model_path(workspace, card)
            figures = provider_figures(card, (found or {}).get(card.model.id, {}), window, now)
            column.best = best_figures(figures)
            column.usage = own_usage(card, rows)
    unknown = [one.name for one in columns if one.card is None]
    return show(
        request,
        "compare_models",
        workspace,
        frame=_frame(workspace),
        open_page="models",
        status=400 if unknown else 200,
        unknown=unknown,
        fields=[*named, *[""] * (MAX_COMPARED - len(named))],
        columns=[one for one in columns if one.card is not None],
        features=list(FEATURES.items()),
        known=[card.model.id for card in current_cards()],
        is_available=found is not None,
        window=window,
        windows=[(one.name, one.title) for one in WINDOWS.values()],
        query=_query(named),
        usage_days=USAGE_DAYS,
        address=f"{settings.PUBLIC_URL}{_COMPARISON}?{_query([card.model.id for card in cards])}",
    )


def _frame(workspace: Workspace | None) -> str:
    """Return the template that the pages extend."""
    return "console/open.html" if workspace is None else "console/workspace.html"


def _window(request: HttpRequest) -> TrafficWindow:
    return WINDOWS.get(request.GET.get("period", ""), WINDOWS[_DEFAULT_WINDOW])


def _query(models: Sequence[str]) -> str:
    query = QueryDict(mutable=True)
    query.setlist("model", list(models))
    return query.urlencode()


def _compare_path(workspace: Workspace | None, models: Sequence[str]) -> str:
    if workspace is None:
        return f"{_COMPARISON}?{_query(models)}"
    where = reverse("console:own_comparison", kwargs={"organization_id": workspace.organization.id})
    return f"{where}?{_query(models)}"


def _model_path(workspace: Workspace | None, card: ModelCard) -> str:
    if workspace is None:
        return f"/models/{quote(card.model.id)}"
    names = {"organization_id": workspace.organization.id, "model_id": card.model.id}
    return reverse("console:own_model", kwargs=names)


def _read_usage(workspace: Workspace, cards: Sequence[ModelCard], now: datetime) -> list[ModelUsage]:
    window, models = window_of(now, days=USAGE_DAYS), [card.model.id for card in cards]
    return replica.read(lambda using: find_model_usage(workspace.organization.id, models, window, using=using))


def _usage_chart(rows: Sequence[ModelUsage], names: dict[str, str], now: datetime) -> dict[str, Any] | None:
    """Return the chart of the organization's spending on a model by day and provider; None without any."""
    if not rows:
        return None
    first = window_of(now, days=USAGE_DAYS).first
    days = [first + timedelta(days=place) for place in range(USAGE_DAYS)]
    return stack_by_day(days, usage_by_day(rows, names), unit="USD")


def _offer(offer: Offer) -> dict[str, Any]:
    stats = CIRCUIT_BREAKERS.stats(f"{offer.provider.id}/{offer.model_id}")
    return {
        "provider": offer.provider.name,
        "id": offer.provider.id,
        "name": offer.model_name,
        "prices": [(words, price, unit) for words, price, unit in price_rows(offer)],
        "tiers": offer.prices.tiers,
        "service_tiers": offer.prices.service_tiers,
        "regions": offer.prices.regions,
        "tools": offer.prices.tools,
        "context": offer.context_length,
        "max_output": offer.max_output,
        "obstacle": find_obstacle(offer.provider),
        "features": [words for name, words in FEATURES.items() if getattr(offer, name)],
        "stability": offer.stability,
        "deprecated_at": offer.deprecated_at,
        "deactivated_at": offer.deactivated_at,
        # No statistics without requests.
        "stats": stats if stats.requests else None,
        "is_open": stats.open,
    }


def _facts(card: ModelCard) -> list[tuple[str, str]]:
    found = card.model
    facts = [
        ("Kind", card.mode),
        ("Made by", found.owned_by),
        ("Family", found.family),
        ("Reads", ", ".join(found.input_modalities)),
        ("Writes", ", ".join(found.output_modalities)),
        ("Context", format_html("{} tokens", number(card.context_length)) if card.context_length else ""),
        ("Longest answer", format_html("{} tokens", number(card.max_output)) if card.max_output else ""),
        ("Features", ", ".join(card.feature_words)),
        ("Reasoning efforts", ", ".join(card.efforts)),
        ("Released", card.created.isoformat() if card.created else ""),
        ("Also called", ", ".join(found.aliases)),
        ("Deprecated", found.deprecated_at.isoformat() if found.deprecated_at else ""),
        ("Ends", found.deactivated_at.isoformat() if found.deactivated_at else ""),
    ]
    return [(name, value) for name, value in facts if value]


PATHS = [
    path("models", enter, name="enter_models"),
    path("o/<str:organization_id>/models/compare", own_comparison, name="own_comparison"),
    path("o/<str:organization_id>/models/<path:model_id>", own_model, name="own_model"),
]
