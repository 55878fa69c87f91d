"""Price cards: the prices of a model at a provider, as its data file states them. Pure.

A card covers everything that a price depends on: the unit, the prompt's length (`tiers`), the service tier
(`service_tiers`), the region (`regions`) and the provider's own tools (`tools`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Self, TypeVar

import msgspec

# Token prices, which a service tier, a region or a batch API changes.
TOKEN_PRICES = (
    *("input", "output", "cached_input", "cache_write", "cache_write_1h", "reasoning"),
    *("image_input", "image_output", "audio_input", "audio_output", "cached_audio", "cached_image"),
)


class PriceTier(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Prices for prompts of more than `above_input_tokens` tokens; None keeps the base price."""

    above_input_tokens: int
    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class ServiceTier(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Token prices of another service tier; None keeps the usual price. `tiers` are those of long prompts."""

    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    image_input: Decimal | None = None
    image_output: Decimal | None = None
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None
    cached_audio: Decimal | None = None
    cached_image: Decimal | None = None
    tiers: tuple[PriceTier, ...] = ()


class PriceCard(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Prices of one model at one provider; None means "not stated".

    Token prices are USD per million tokens, and `characters` USD per million characters of speech input. `image` is USD
    per generated image, `request` per request, `web_search` per call, `grounded_request` per request with a web search,
    `audio_minute` per minute of audio (`audio_minimum` is the minimum billed seconds per recording), `search_unit` per
    query over a provider's unit of documents, and `tools` per call of a provider's tool, by the tool's name.

    `service_tiers` are by the tier's name (`flex`, `priority`, `fast`), `regions` are factors on token prices by region
    name (`us`), and `search_sizes` are prices of a search by the amount of web content (`low`, `medium`, `high`), in
    place of `web_search`.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    reasoning: Decimal | None = None
    image_input: Decimal | None = None
    image_output: Decimal | None = None
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None
    cached_audio: Decimal | None = None
    cached_image: Decimal | None = None
    image: Decimal | None = None
    request: Decimal | None = None
    web_search: Decimal | None = None
    grounded_request: Decimal | None = None
    characters: Decimal | None = None
    audio_minute: Decimal | None = None
    audio_minimum: Decimal | None = None
    search_unit: Decimal | None = None
    tiers: tuple[PriceTier, ...] = ()
    service_tiers: dict[str, ServiceTier] = {}
    regions: dict[str, Decimal] = {}
    tools: dict[str, Decimal] = {}
    search_sizes: dict[str, Decimal] = {}

    def at(self, service_tier: str, region: str = "") -> Self:
        """Return the card with the token prices of a service tier and region only.

        An unknown tier or region changes nothing.
        """
        tier = self.service_tiers.get(service_tier)
        card = self if tier is None else self._at_tier(tier)
        if (factor := self.regions.get(region)) is not None:
            card = multiply_tokens(card, factor)
        return msgspec.structs.replace(card, service_tiers={}, regions={})

    def _at_tier(self, tier: ServiceTier) -> Self:
        stated = {name: price for name in TOKEN_PRICES if (price := getattr(tier, name, None)) is not None}
        card = msgspec.structs.replace(self, **stated)
        if tier.tiers:
            return msgspec.structs.replace(card, tiers=tier.tiers)
        # The price of a long prompt at this tier is unknown: use the higher of the usual one and a short prompt's.
        return msgspec.structs.replace(card, tiers=tuple(_at_least(long, tier) for long in self.tiers))

    @property
    def unpriced(self) -> bool:
        """True if no price is stated: the cost is 0 and must be marked as unknown."""
        return (
            self.input is None
            and self.output is None
            and self.image_input is None
            and self.image_output is None
            and self.audio_input is None
            and self.audio_output is None
            and self.image is None
            and self.request is None
            and self.characters is None
            and self.audio_minute is None
            and self.search_unit is None
        )

    @property
    def free(self) -> bool:
        """True if prices are stated and all are zero, for all units and prompt lengths."""
        if self.input or self.output:
            return False
        cards = (self, *self.tiers, *self.service_tiers.values())
        stated = [
            price
            for card in cards
            for name in card.__struct_fields__
            if name != "audio_minimum" and isinstance(price := getattr(card, name), Decimal)
        ]
        return bool(stated) and not any(stated) and not any((*self.tools.values(), *self.search_sizes.values()))


_Card = TypeVar("_Card", bound="PriceCard | PriceTier | ServiceTier")


def multiply_tokens(card: _Card, factor: Decimal, cached_factor: Decimal | None = None) -> _Card:
    """Return the card with its token prices, also those of long prompts, times a factor; cached tokens may have their
    own factor."""
    cached = factor if cached_factor is None else cached_factor
    changed = {
        name: price * (cached if name.startswith("cached_") else factor)
        for name in TOKEN_PRICES
        if (price := getattr(card, name, None)) is not None
    }
    if not isinstance(card, PriceTier) and card.tiers:
        tiers = tuple(multiply_tokens(tier, factor, cached_factor) for tier in card.tiers)
        return msgspec.structs.replace(card, **changed, tiers=tiers)
    return msgspec.structs.replace(card, **changed)


def multiply_all_tokens(card: PriceCard, factor: Decimal) -> PriceCard:
    """Return the card with its token prices times a factor, those of all tiers of service too."""
    tiers = {name: multiply_tokens(tier, factor) for name, tier in card.service_tiers.items()}
    return msgspec.structs.replace(multiply_tokens(card, factor), service_tiers=tiers)


def _at_least(long: PriceTier, tier: ServiceTier) -> PriceTier:
    higher = {
        name: max(price, own)
        for name in ("input", "output", "cached_input", "cache_write", "cache_write_1h")
        if (price := getattr(long, name)) is not None and (own := getattr(tier, name)) is not None
    }
    return msgspec.structs.replace(long, **higher)
