"""Editions: names of a model at a provider that have a price of their own, such as regional, dated or faster ones.

Pure: a data file states them, rows keep them among a mapping's facts, and the reader makes an offer of each.
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
    """Names that share a price, which differs from the mapping's own; dates that are absent are the mapping's.

    The price is the mapping's with a `factor` on the prices of tokens, or a whole card, `prices`. The first of the
    names is sent where a client does not name another.
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
        """Return what the edition costs, given the mapping's card. Raises ValueError for prices that cannot be meant.

        `tools` and `search_sizes` stay as they are where `prices` does not state them.
        """
        if self.factor is None:
            card = read_card(self.prices)
            kept = {"tools": usual.tools, "search_sizes": usual.search_sizes}
            unstated = {name: prices for name, prices in kept.items() if name not in self.prices}
            return msgspec.structs.replace(card, **unstated)
        tiers = {name: multiply_tokens(tier, self.factor) for name, tier in usual.service_tiers.items()}
        return msgspec.structs.replace(multiply_tokens(usual, self.factor), service_tiers=tiers)


def read_editions(stated: Any) -> list[Edition]:
    """Return the editions that a row's facts state. Raises ValueError for what is none."""
    return msgspec.convert(stated, list[Edition], strict=False)


def write_cards(stated: Any, usual: PriceCard) -> dict[str, Any]:
    """Return what each edition of a row costs, by its first name, as the history of prices keeps cards."""
    return {edition.names[0]: write_card(edition.card(usual)) for edition in read_editions(stated)}
