"""Editions: names of a model at a provider with their own price, such as regional, dated or faster ones.

Pure: data files define them, rows keep them among a mapping's facts, and the reader makes an offer of each.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apps.catalog.price_cards import MAX_FACTOR, read_card, write_card
from apps.kernel.prices import PriceCard, multiply_tokens

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Edition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Names that share a price different from the mapping's; absent dates are the mapping's.

    The price is the mapping's with a `factor` on token prices, or a complete card, `prices`. The first name is sent if
    a client does not name another.
    """

    names: Annotated[list[Name], Meta(min_length=1)]
    factor: Decimal | None = None
    prices: dict[str, Any] = {}
    context: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    max_output: Annotated[int, Meta(ge=1, le=100_000_000)] | None = None
    deprecated: date | None = None
    deactivated: date | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (not self.prices):
            raise ValueError(f"edition {self.names[0]}: state either `factor` or `prices`")
        if self.factor is not None and not 1 / MAX_FACTOR <= self.factor <= MAX_FACTOR:
            raise ValueError(f"edition {self.names[0]}: `factor` must be between {1 / MAX_FACTOR} and {MAX_FACTOR}")

    def card(self, usual: PriceCard) -> PriceCard:
        """Return the edition's card, given the mapping's. Raises ValueError for invalid prices.

        `tools` and `search_sizes` are the mapping's unless `prices` has them.
        """
        if self.factor is None:
            card = read_card(self.prices)
            kept = {"tools": usual.tools, "search_sizes": usual.search_sizes}
            unstated = {name: prices for name, prices in kept.items() if name not in self.prices}
            return msgspec.structs.replace(card, **unstated)
        tiers = {name: multiply_tokens(tier, self.factor) for name, tier in usual.service_tiers.items()}
        return msgspec.structs.replace(multiply_tokens(usual, self.factor), service_tiers=tiers)


def read_editions(stated: Any) -> list[Edition]:
    """Return the editions in a row's facts. Raises ValueError for invalid ones."""
    return msgspec.convert(stated, list[Edition], strict=False)


def write_cards(stated: Any, usual: PriceCard) -> dict[str, Any]:
    """Return the card of each edition of a row, by its first name, as the price history stores cards."""
    return {edition.names[0]: write_card(edition.card(usual)) for edition in read_editions(stated)}
