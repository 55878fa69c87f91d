"""Price cards: what a model costs at a provider, as its data file states it. Pure."""

from __future__ import annotations

from decimal import Decimal

import msgspec


class PriceTier(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Other prices for prompts of more than `above_input_tokens` tokens; None keeps the base price."""

    above_input_tokens: int
    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None


class PriceCard(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Prices of one model at one provider; None is "not stated".

    Token prices are USD per million tokens, and `characters` USD per million characters read aloud. `image` is USD per
    picture made, `request` per request, `web_search` per call, `audio_minute` per minute listened to, `search_unit` per
    query over a provider's measure of documents.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    image_input: Decimal | None = None
    image_output: Decimal | None = None
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None
    image: Decimal | None = None
    request: Decimal | None = None
    web_search: Decimal | None = None
    characters: Decimal | None = None
    audio_minute: Decimal | None = None
    search_unit: Decimal | None = None
    tiers: tuple[PriceTier, ...] = ()

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
        cards = (self, *self.tiers)
        stated = [
            price
            for card in cards
            for name in card.__struct_fields__
            if isinstance(price := getattr(card, name), Decimal)
        ]
        return bool(stated) and not any(stated)
