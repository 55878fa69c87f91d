"""Price card parsing, strict: a price that cannot be meant is refused; and the prices of each edition. Pure.

An edition is a name of a model at a provider with its own price, such as a regional, dated or faster one: data files
define them, rows keep them among a mapping's facts, and the reader makes an offer of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from apps.kernel.prices import PriceCard, PriceTier, ServiceTier, multiply_tokens

# USD: a token price is per million, and no model is a hundred times dearer than today's dearest.
DEAREST_MILLION, DEAREST_PIECE = Decimal(10_000), Decimal(100)
# Digits after the point: with six, one token costs a whole number of the ledger's smallest unit (1e-12 USD).
MILLION_PLACES, PIECE_PLACES = 6, 12
_PIECES = {"image", "request", "web_search", "grounded_request", "audio_minute", "audio_minimum", "search_unit"}
# A region multiplies the prices of tokens by no more than this, and by no less than its reciprocal.
MAX_FACTOR, FACTOR_PLACES = Decimal(10), 4
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def read_card(prices: Mapping[str, Any]) -> PriceCard:
    """Return the card that a file or a row states; decimals may be numbers or strings.

    Raises ValueError naming the price: an unknown one, one below zero, or one that is absurdly large or fine.
    Prices of tiers of service and of tools are held to the same.
    """
    card = msgspec.convert(prices, PriceCard)
    _check(prices, card)
    for name, tier in card.service_tiers.items():
        _check_name("service tier", name)
        _check(prices["service_tiers"][name], tier)
    for name, factor in card.regions.items():
        _check_name("region", name)
        _check_amount(f"regions.{name}", factor, MAX_FACTOR, FACTOR_PLACES)
        if factor < 1 / MAX_FACTOR:
            raise ValueError(f"`regions.{name}` must be at least {1 / MAX_FACTOR}; it is {factor}")
    for table in ("tools", "search_sizes"):
        for name, price in getattr(card, table).items():
            _check_name("tool" if table == "tools" else "search size", name)
            _check_amount(f"{table}.{name}", price, DEAREST_PIECE, PIECE_PLACES)
    return card


def write_card(card: PriceCard) -> dict[str, Any]:
    """Return the card as a row keeps it: decimals as strings, nothing that is not stated."""
    kept: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    return kept


def _check(stated: Mapping[str, Any], card: PriceCard | ServiceTier | PriceTier) -> None:
    if unknown := sorted(set(stated) - set(card.__struct_fields__)):
        raise ValueError(f"unknown price `{unknown[0]}`")
    for name, price in _stated(card):
        limit, places = (DEAREST_PIECE, PIECE_PLACES) if name in _PIECES else (DEAREST_MILLION, MILLION_PLACES)
        _check_amount(name, price, limit, places)
    if not isinstance(card, PriceTier):
        for long, tier in zip(stated.get("tiers", ()), card.tiers, strict=True):
            _check(long, tier)


def _check_amount(name: str, amount: Decimal, limit: Decimal, places: int) -> None:
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= amount <= limit:
        raise ValueError(f"`{name}` must be between 0 and {limit} USD; it is {amount}")
    if -exponent > places:
        raise ValueError(f"`{name}` has more than {places} digits after the point: {amount}")


def _check_name(kind: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"`{name[:40]}` is no name of a {kind}")


def _stated(card: PriceCard | ServiceTier | PriceTier) -> Iterable[tuple[str, Decimal]]:
    for name in card.__struct_fields__:
        price = getattr(card, name)
        if isinstance(price, Decimal):
            yield name, price


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
