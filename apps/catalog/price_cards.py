"""Price card parsing, strict: a price that cannot be meant is refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from apps.kernel.prices import PriceCard, PriceTier, ServiceTier

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
