"""The public catalogue: every model with prices, features and providers.

The page depends on the query string alone and needs no database query.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse

from apps.catalog.offers import Offer
from apps.console.model_cards import (
    FEATURES,
    MODES,
    SORTS,
    Search,
    current_cards,
    search,
)
from apps.console.rendering import show
from apps.console.visit import public_page
from apps.gateway.routing.availability import find_obstacle
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS

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
