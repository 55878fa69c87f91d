"""Pages of models: the public catalog, with prices, features and providers; the page of a model, and the comparison
of several, for everybody, and with an organization's own usage.

The pages for everybody depend on the address alone; the catalog needs no database query.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_noop

from apps.catalog.offers import Offer
from apps.console.browser_session import BrowserSession
from apps.console.model_cards import (
    FEATURES,
    MODES,
    SORTS,
    ModelCard,
    Search,
    current_cards,
    find_card,
    price_rows,
    search,
)
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
from apps.kernel.pages.languages import translated
from apps.kernel.postgres import replica
from apps.kernel.rest.errors import show_error
from apps.keys.models import ProviderKey
from apps.logs.activity import window_of
from apps.logs.performance import WINDOWS
from apps.logs.traffic import TrafficWindow
from apps.logs.usage import ModelUsage, find_model_usage
from apps.organizations.plans import limits_of

PAGE_SIZE: Final = 50
# Characters of a query parameter; pages of results.
_MAX_TEXT, _MAX_PAGES = 100, 1_000


@public_page()
def models(request: HttpRequest) -> HttpResponse:
    """Show the models that the query asks for: `q`, `mode`, `feature` (several), `provider`, `free`, `callable`,
    `sort`, `page`."""
    cards = current_cards()
    known = {offer.provider.id: offer.provider for card in cards for offer in card.offers}
    reached = frozenset(name for name, provider in known.items() if not find_obstacle(provider))
    wanted = _read(request, reached)
    found = search(cards, wanted)
    last = max(1, -(-len(found) // PAGE_SIZE))
    stated = request.GET.get("page", "1")
    page = min(max(1, int(stated) if stated.isdecimal() and len(stated) < len(str(_MAX_PAGES)) else 1), last)
    start = (page - 1) * PAGE_SIZE
    providers = {name: provider.name for name, provider in known.items()}
    return show(
        request,
        "models",
        open_page="models",
        wanted=wanted,
        rows=[
            {"card": card, "uptime": _uptime(card.offers), "needs_own_key": reached.isdisjoint(card.providers)}
            for card in found[start : start + PAGE_SIZE]
        ],
        is_callable=wanted.reached is not None,
        count=len(found),
        total=len(cards),
        modes=[("", gettext("All kinds")), *MODES.items()],
        features=[(name, words, name in wanted.features) for name, words in FEATURES.items()],
        providers=[("", gettext("All providers")), *sorted(providers.items(), key=lambda one: one[1].lower())],
        sorts=list(SORTS.items()),
        page=page,
        last=last,
        before=_address(wanted, page - 1) if page > 1 else "",
        after=_address(wanted, page + 1) if page < last else "",
    )


def _read(request: HttpRequest, reached: frozenset[str]) -> Search:
    said = request.GET
    sort = said.get("sort", "")
    mode = said.get("mode", "")
    return Search(
        words=said.get("q", "")[:_MAX_TEXT].strip(),
        mode=mode if mode in MODES else "",
        features=tuple(name for name in FEATURES if name in said.getlist("feature")[: len(FEATURES)]),
        provider=said.get("provider", "")[:_MAX_TEXT],
        is_free=said.get("free") == "true",
        reached=reached if said.get("callable") == "true" else None,
        sort=sort if sort in SORTS else "newest",
    )


def _address(wanted: Search, page: int) -> str:
    """Return the query string of another page of the same search."""
    said: dict[str, Any] = {"q": wanted.words, "mode": wanted.mode, "provider": wanted.provider, "sort": wanted.sort}
    said["free"] = "true" if wanted.is_free else ""
    said["callable"] = "true" if wanted.reached is not None else ""
    stated = {name: value for name, value in said.items() if value}
    return "?" + urlencode({**stated, "feature": wanted.features, "page": page}, doseq=True)


def _uptime(offers: tuple[Offer, ...]) -> Decimal | float | None:
    """Return the best uptime of the last five minutes, as a share; None without traffic."""
    known = [CIRCUIT_BREAKERS.stats(f"{offer.provider.id}/{offer.model_id}") for offer in offers]
    seen = [stats.uptime / 100 for stats in known if stats.requests]
    return max(seen) if seen else None


# Models that are compared side by side.
MAX_COMPARED: Final = 4
# Days of an organization's own usage.
USAGE_DAYS: Final = 30
_DEFAULT_WINDOW: Final = "7d"
# Characters of a model's name.
_MAX_NAME: Final = 255
# The path of the comparison for everybody.
_COMPARISON: Final = "/models/compare"
_NO_MODEL: Final = gettext_noop("There is no such model, or no provider serves it any more")


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
    asked = request.GET.getlist("model")[:MAX_COMPARED]
    if len(asked) == 1 and find_card(asked[0][:_MAX_NAME]) is not None:
        return redirect(reverse("console:own_model", kwargs={**names, "model_id": asked[0]}))
    query = QueryDict(mutable=True)
    query.setlist("model", [name[:_MAX_NAME] for name in asked])
    return redirect(f"{reverse('console:own_comparison', kwargs=names)}?{query.urlencode()}")


def _show_model(request: HttpRequest, card: ModelCard, workspace: Workspace | None) -> HttpResponse:
    now, window = datetime.now(UTC), _window(request)
    names = {offer.provider.id: offer.provider.name for offer in card.offers}
    found = read_figures([card.model.id], window, now)
    rows = [] if workspace is None else _read_usage(workspace, [card], now)
    # Requests reach these with the organization's own keys.
    reached = set[str]() if workspace is None else set(_own_providers(workspace))
    return show(
        request,
        "one_model",
        workspace,
        frame=_frame(workspace),
        open_page="models",
        card=card,
        offers=[
            _offer(one, reached) | {"others": () if one is offer else one.own_names[1:]}
            for offer in card.offers
            for one in (offer, *offer.editions)
            if one.is_live(now.date())
        ],
        snippets=snippets_for(card.model.mode, card.model.id, settings.PUBLIC_URL),
        facts=_facts(card),
        needs_plan=workspace is not None and not limits_of(workspace.organization.plan).provider_keys,
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
    window, ids = window_of(now, days=USAGE_DAYS), [card.model.id for card in cards]
    return replica.read(lambda using: find_model_usage(workspace.organization.id, ids, window, using=using))


def _usage_chart(rows: Sequence[ModelUsage], names: dict[str, str], now: datetime) -> dict[str, Any] | None:
    """Return the chart of the organization's spending on a model by day and provider; None without any."""
    if not rows:
        return None
    first = window_of(now, days=USAGE_DAYS).first
    days = [first + timedelta(days=place) for place in range(USAGE_DAYS)]
    return stack_by_day(days, usage_by_day(rows, names), unit="USD")


def _own_providers(workspace: Workspace) -> QuerySet[ProviderKey, str]:
    """Return the providers of the organization's own keys that are in use."""
    keys = ProviderKey.objects.filter(organization=workspace.organization, status=ProviderKey.Status.ACTIVE)
    return keys.values_list("provider", flat=True)


def _offer(offer: Offer, reached: Collection[str]) -> dict[str, Any]:
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
        "obstacle": find_obstacle(offer.provider, has_own_key=offer.provider.id in reached),
        "has_own_key": offer.provider.id in reached,
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
        (gettext("Kind"), card.kind),
        (gettext("Made by"), found.owned_by),
        (gettext("Family"), found.family),
        (gettext("Reads"), ", ".join(map(translated, found.input_modalities))),
        (gettext("Writes"), ", ".join(map(translated, found.output_modalities))),
        (
            gettext("Context"),
            format_html(gettext("{} tokens"), number(card.context_length)) if card.context_length else "",
        ),
        (
            gettext("Longest answer"),
            format_html(gettext("{} tokens"), number(card.max_output)) if card.max_output else "",
        ),
        (gettext("Features"), ", ".join(map(str, card.feature_words))),
        (gettext("Reasoning efforts"), ", ".join(card.efforts)),
        (gettext("Released"), card.created.isoformat() if card.created else ""),
        (gettext("Also called"), ", ".join(found.aliases)),
        (gettext("Deprecated"), found.deprecated_at.isoformat() if found.deprecated_at else ""),
        (gettext("Ends"), found.deactivated_at.isoformat() if found.deactivated_at else ""),
    ]
    return [(name, value) for name, value in facts if value]


PATHS = [
    path("models", enter, name="enter_models"),
    path("o/<str:organization_id>/models/compare", own_comparison, name="own_comparison"),
    path("o/<str:organization_id>/models/<path:model_id>", own_model, name="own_model"),
]
