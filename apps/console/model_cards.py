"""Model cards: the catalog as pages show it, one card a model, with search, filters and sorting.

Cards are built once for each catalog and day, so a page needs no query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from apps.catalog import catalog_cache
from apps.catalog.model_listing import build_entry
from apps.catalog.offers import Catalog, CatalogModel, Offer
from apps.catalog.price_words import PRICES
from apps.kernel.money import plain
from apps.kernel.pages.languages import gettext_lazy

# Features to filter by, with their labels, in display order.
FEATURES: Final = {
    "tools": gettext_lazy("Tools"),
    "reasoning": gettext_lazy("Reasoning"),
    "vision": gettext_lazy("Vision"),
    "structured_outputs": gettext_lazy("Structured outputs"),
    "json_output": gettext_lazy("JSON mode"),
    "web_search": gettext_lazy("Web search"),
    "prompt_cache": gettext_lazy("Prompt cache"),
    "streaming": gettext_lazy("Streaming"),
}
# Modes of models, with their labels.
MODES: Final = {
    "chat": gettext_lazy("Chat"),
    "image_generation": gettext_lazy("Images"),
    "embedding": gettext_lazy("Embeddings"),
    "rerank": gettext_lazy("Reranking"),
    "audio_speech": gettext_lazy("Speech"),
    "audio_transcription": gettext_lazy("Transcription"),
    "moderation": gettext_lazy("Moderation"),
}
SORTS: Final = {
    "newest": gettext_lazy("Newest"),
    "name": gettext_lazy("Name"),
    "price": gettext_lazy("Price, lowest first"),
    "context": gettext_lazy("Context, largest first"),
}
_MAX_WORDS = 12
_NEVER_LAST = 10**9


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model as pages show it. Prices are the cheapest provider's in USD per million tokens, None without a price.

    `piece_prices` are prices for units other than tokens, with their units.
    """

    model: CatalogModel
    offers: tuple[Offer, ...]
    description: str
    input_price: Decimal | None
    output_price: Decimal | None
    piece_prices: tuple[tuple[Decimal, str], ...]
    is_free: bool
    context_length: int | None
    max_output: int | None
    features: tuple[str, ...]
    efforts: tuple[str, ...]
    created: date | None
    words: str

    @property
    def mode(self) -> str:
        """The label of the model's mode."""
        return MODES.get(self.model.mode, self.model.mode)

    @property
    def pieces(self) -> tuple[str, ...]:
        """The prices for units other than tokens, as text."""
        return tuple(f"${plain(price)} {unit}" for price, unit in self.piece_prices)

    @property
    def is_pretended(self) -> bool:
        """Whether the model exists only for development."""
        return all(offer.provider.facts.get("development_only") for offer in self.offers)

    @property
    def feature_words(self) -> list[str]:
        """Labels of the features, without streaming, which nearly every model has."""
        return [FEATURES[name] for name in self.features if name != "streaming"]

    @property
    def kind(self) -> str:
        """The kind of the model, in words."""
        return MODES.get(self.model.mode, self.model.mode)

    @property
    def providers(self) -> list[str]:
        """The ids of the providers that serve the model."""
        return [offer.provider.id for offer in self.offers]


@dataclass(frozen=True, slots=True)
class Search:
    """Search terms and filters; empty values match everything."""

    words: str = ""
    mode: str = ""
    features: tuple[str, ...] = ()
    provider: str = ""
    is_free: bool = False
    # With these providers only, if they are given.
    reached: frozenset[str] | None = None
    sort: str = "newest"

    def finds(self, card: ModelCard) -> bool:
        """Return whether a card matches."""
        return (
            all(word in card.words for word in self.words.lower().split()[:_MAX_WORDS])
            and self.mode in ("", card.model.mode)
            and set(self.features) <= set(card.features)
            and (not self.provider or self.provider in card.providers)
            and (card.is_free or not self.is_free)
            and (self.reached is None or not self.reached.isdisjoint(card.providers))
        )


def current_cards() -> tuple[ModelCard, ...]:
    """Return a card for each model that is served today, by name."""
    return _cards_of(catalog_cache.current(), datetime.now(UTC).date())


def find_card(model_id: str) -> ModelCard | None:
    """Return a model's card by id or alias; None if no provider serves it."""
    catalog = catalog_cache.current()
    wanted = catalog.aliases.get(model_id, model_id)
    return next((card for card in current_cards() if card.model.id == wanted), None)


def search(cards: Iterable[ModelCard], wanted: Search) -> list[ModelCard]:
    """Return the matching cards in the requested order."""
    found = [card for card in cards if wanted.finds(card)]
    if wanted.sort == "name":
        return found
    if wanted.sort == "price":
        return sorted(found, key=_price_of)
    if wanted.sort == "context":
        return sorted(found, key=lambda card: -(card.context_length or 0))
    return sorted(found, key=lambda card: (not card.is_pretended, card.created or date.min), reverse=True)


def price_rows(offer: Offer) -> list[tuple[str, Decimal, str]]:
    """Return the prices of an offer: label, USD, and unit."""
    return [
        (gettext_lazy(label), price, gettext_lazy(unit))
        for name, (label, unit) in PRICES.items()
        if (price := getattr(offer.prices, name)) is not None
    ]


@lru_cache(maxsize=2)
def _cards_of(catalog: Catalog, today: date) -> tuple[ModelCard, ...]:
    cards = [
        _card_of(model, live)
        for model in catalog.models.values()
        if (live := tuple(offer for offer in model.offers if offer.is_live(today)))
    ]
    return tuple(sorted(cards, key=lambda card: (card.model.name.lower(), card.model.id)))


def _card_of(model: CatalogModel, offers: tuple[Offer, ...]) -> ModelCard:
    entry = build_entry(model, offers)
    has_output = any(offer.prices.output is not None for offer in offers)
    has_tokens = has_output or any(offer.prices.input is not None for offer in offers)
    prompt, completion = (Decimal(entry["pricing"][name]) * 1_000_000 for name in ("prompt", "completion"))
    names = (model.id, model.name, model.owned_by, model.family, *model.aliases)
    served = tuple(name for offer in offers for name in (offer.provider.id, offer.provider.name))
    return ModelCard(
        model=model,
        offers=tuple(sorted(offers, key=lambda offer: _sum_of(offer))),
        description=entry["description"],
        input_price=prompt if has_tokens else None,
        output_price=completion if has_output else None,
        piece_prices=() if has_tokens else _pieces_of(offers),
        is_free=entry["free"],
        context_length=entry["context_length"] or None,
        max_output=entry["top_provider"]["max_completion_tokens"],
        features=tuple(name for name in FEATURES if any(getattr(offer, name) for offer in offers)),
        efforts=_efforts_of(offers),
        created=datetime.fromtimestamp(model.created, UTC).date() if model.created else None,
        words=" ".join((*names, *served, entry["description"])).lower(),
    )


def _pieces_of(offers: Sequence[Offer]) -> tuple[tuple[Decimal, str], ...]:
    rows = price_rows(min(offers, key=_sum_of))
    return tuple((price, unit) for _, price, unit in rows if price)[:2]


def _efforts_of(offers: Sequence[Offer]) -> tuple[str, ...]:
    """Return the reasoning efforts that a provider distinguishes; the usual ones if none is known."""
    if not any(offer.reasoning for offer in offers):
        return ()
    stated = [tuple(offer.facts.get("reasoning_efforts", ())) for offer in offers]
    return max(stated, key=len) or ("low", "medium", "high")


def _sum_of(offer: Offer) -> Decimal:
    if offer.prices.unpriced:
        return Decimal(_NEVER_LAST)
    return sum((price for _, price, _ in price_rows(offer)[:2]), Decimal(0))


def _price_of(card: ModelCard) -> Decimal:
    if card.input_price is None:
        return Decimal(_NEVER_LAST)
    return card.input_price + (card.output_price or Decimal(0))
