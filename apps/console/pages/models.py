"""The public catalogue: every model with prices, features and providers, and a page for each.

Pages depend on the query string alone and need no database query.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html

from apps.catalog.offers import Offer
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
from apps.console.rendering import show
from apps.console.snippets import snippets_for
from apps.console.templatetags.console import number
from apps.console.visit import public_page
from apps.gateway.routing.availability import find_obstacle
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.kernel.errors import NotFound
from apps.kernel.rest.errors import show_error

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
        modes=[("", "All kinds"), *MODES.items()],
        features=[(name, words, name in wanted.features) for name, words in FEATURES.items()],
        providers=[("", "All providers"), *sorted(providers.items(), key=lambda one: one[1].lower())],
        sorts=list(SORTS.items()),
        page=page,
        last=last,
        before=_address(wanted, page - 1) if page > 1 else "",
        after=_address(wanted, page + 1) if page < last else "",
    )


@public_page()
def model(request: HttpRequest, model_id: str) -> HttpResponse:
    """Show one model: its features, providers, prices, and example requests."""
    card = find_card(model_id[:255])
    if card is None:
        # Programs may use the same path for another resource.
        return show_error(request, NotFound("There is no such model, or no provider serves it any more"))
    today = datetime.now(UTC).date()
    return show(
        request,
        "model",
        open_page="models",
        card=card,
        offers=[
            _offer(one) | {"others": () if one is offer else one.own_names[1:]}
            for offer in card.offers
            for one in (offer, *offer.editions)
            if one.is_live(today)
        ],
        snippets=snippets_for(card.model.mode, card.model.id, settings.PUBLIC_URL),
        facts=_facts(card),
        is_talking=card.model.mode in {"chat", "image_generation"},
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


def _uptime(offers: tuple[Offer, ...]) -> Decimal | float | None:
    """Return the best uptime of the last five minutes, as a share; None without traffic."""
    known = [CIRCUIT_BREAKERS.stats(f"{offer.provider.id}/{offer.model_id}") for offer in offers]
    seen = [stats.uptime / 100 for stats in known if stats.requests]
    return max(seen) if seen else None


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
