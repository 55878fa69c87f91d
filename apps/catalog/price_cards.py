"""Price card parsing, strict: a price that cannot be meant is refused. Pure.

Knows which prices a card may state and how large they may be. Must never know where cards are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from apps.kernel.prices import PriceCard, PriceTier

# USD: a token price is per million, and no model is a hundred times dearer than today's dearest.
DEAREST_MILLION, DEAREST_PIECE = Decimal(10_000), Decimal(100)
# Digits after the point: with six, one token costs a whole number of the ledger's smallest unit (1e-12 USD).
MILLION_PLACES, PIECE_PLACES = 6, 12
_PIECES = {"image", "request", "web_search", "audio_minute", "search_unit"}


def read_card(prices: Mapping[str, Any]) -> PriceCard:
    """Return the card that a file or a row states; decimals may be numbers or strings.

    Raises ValueError naming the price: an unknown one, one below zero, or one that is absurdly large or fine.
    """
    card = msgspec.convert(prices, PriceCard)
    _refuse_unknown(prices, card)
    _check(card)
    for stated, tier in zip(prices.get("tiers", ()), card.tiers, strict=True):
        _refuse_unknown(stated, tier)
        _check(tier)
    return card


def write_card(card: PriceCard) -> dict[str, Any]:
    """Return the card as a row keeps it: decimals as strings, nothing that is not stated."""
    kept: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    return kept


def _refuse_unknown(stated: Mapping[str, Any], card: PriceCard | PriceTier) -> None:
    if unknown := sorted(set(stated) - set(card.__struct_fields__)):
        raise ValueError(f"unknown price `{unknown[0]}`")


def _check(card: PriceCard | PriceTier) -> None:
    for name, price in _stated(card):
        limit, places = (DEAREST_PIECE, PIECE_PLACES) if name in _PIECES else (DEAREST_MILLION, MILLION_PLACES)
        exponent = price.as_tuple().exponent
        if not isinstance(exponent, int) or not 0 <= price <= limit:
            raise ValueError(f"`{name}` must be between 0 and {limit} USD; it is {price}")
        if -exponent > places:
            raise ValueError(f"`{name}` has more than {places} digits after the point: {price}")


def _stated(card: PriceCard | PriceTier) -> Iterable[tuple[str, Decimal]]:
    for name in card.__struct_fields__:
        price = getattr(card, name)
        if isinstance(price, Decimal):
            yield name, price
