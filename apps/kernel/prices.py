"""Price cards: what a model costs at a provider, as its data file states it. Pure.

A card has a place for everything that a price depends on: what is counted, how long the prompt is (`tiers`), how fast
it is served (`service_tiers`), where it is computed (`regions`) and which tools of the provider's it uses (`tools`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Self, TypeVar

import msgspec

# Prices of tokens: those that a tier of service, a region or a batch API changes.
TOKEN_PRICES = (
    *("input", "output", "cached_input", "cache_write", "cache_write_1h", "reasoning"),
    *("image_input", "image_output", "audio_input", "audio_output", "cached_audio", "cached_image"),
)


class PriceTier(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Other prices for prompts of more than `above_input_tokens` tokens; None keeps the base price."""

    above_input_tokens: int
    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class ServiceTier(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Prices of tokens at another tier of service; None keeps the usual price. `tiers` are those of long prompts."""

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
    """Prices of one model at one provider; None is "not stated".

    Token prices are USD per million tokens, and `characters` USD per million characters read aloud. `image` is USD per
    picture made, `request` per request, `web_search` per call, `grounded_request` per request that searches at all,
    `audio_minute` per minute listened to (`audio_minimum` are the seconds that each recording is paid for at least),
    `search_unit` per query over a provider's measure of documents, and `tools` per call of a tool that the provider
    runs, by the tool's name.

    `service_tiers` are by the tier's name (`flex`, `priority`, `fast`), `regions` are factors on the prices of tokens
    by the name of the region that computes (`us`), and `search_sizes` what a search costs by how much of the web it
    looks at (`low`, `medium`, `high`), in place of `web_search`.
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
        """Return the card with the prices of tokens that hold at a tier of service and in a region, and no others.

        A tier or region that the card does not state changes nothing.
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
        # The price of a long prompt at this tier is not stated: take the higher of the usual one and a short prompt's.
        return msgspec.structs.replace(card, tiers=tuple(_at_least(long, tier) for long in self.tiers))

    @property
    def unpriced(self) -> bool:
        """True when no price is stated at all: the cost is 0 and must be marked as unknown."""
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
        """True when prices are stated and every one is zero, whatever is used and however long the prompt is."""
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
    """Return the card with its prices of tokens, those of long prompts too, times a factor; those of cached tokens
    times one of their own if there is one."""
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


def _at_least(long: PriceTier, tier: ServiceTier) -> PriceTier:
    higher = {
        name: max(price, own)
        for name in ("input", "output", "cached_input", "cache_write", "cache_write_1h")
        if (price := getattr(long, name)) is not None and (own := getattr(tier, name)) is not None
    }
    return msgspec.structs.replace(long, **higher)
