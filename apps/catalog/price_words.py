"""Words for the prices of a card: what each is for and in what unit, on pages, in alerts and in the admin.

A card's tables (tiers, service tiers, regions, tools, editions) are read as one price each, with words of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext, gettext_noop

from apps.kernel.pages.number_formats import count

_MILLION, _EACH, _MINUTE = gettext_noop("per million"), gettext_noop("each"), gettext_noop("per minute")
# Prices that an offer is shown with, in that order: label and unit.
PRICES: Final = {
    "input": (gettext_noop("Input"), _MILLION),
    "output": (gettext_noop("Output"), _MILLION),
    "cached_input": (gettext_noop("Cached input"), _MILLION),
    "cache_write": (gettext_noop("Cache write"), _MILLION),
    "cache_write_1h": (gettext_noop("Cache write for an hour"), _MILLION),
    "image_input": (gettext_noop("Picture input"), _MILLION),
    "image_output": (gettext_noop("Picture output"), _MILLION),
    "audio_input": (gettext_noop("Sound input"), _MILLION),
    "audio_output": (gettext_noop("Sound output"), _MILLION),
    "cached_audio": (gettext_noop("Cached sound"), _MILLION),
    "cached_image": (gettext_noop("Cached pictures"), _MILLION),
    "image": (gettext_noop("Picture"), _EACH),
    "request": (gettext_noop("Request"), _EACH),
    "web_search": (gettext_noop("Web search"), _EACH),
    "grounded_request": (gettext_noop("Request with web search"), _EACH),
    "characters": (gettext_noop("Characters"), _MILLION),
    "audio_minute": (gettext_noop("Sound"), _MINUTE),
    "search_unit": (gettext_noop("Search unit"), _EACH),
}
# Labels of all prices; the last two are shown only where they change.
LABELS: Final = {name: label for name, (label, _) in PRICES.items()} | {
    "reasoning": gettext_noop("Reasoning"),
    "audio_minimum": gettext_noop("Shortest paid recording"),
}
# Amounts of prices for other units than a million tokens.
_EACH_ONE: Final = gettext_noop("{amount} each")
_AMOUNTS: Final = {
    **{name: _EACH_ONE for name, (_, unit) in PRICES.items() if unit == _EACH},
    "characters": gettext_noop("{amount} per million"),
    "audio_minute": gettext_noop("{amount} per minute"),
    "audio_minimum": gettext_noop("{amount} seconds"),
}
# Tables with a price for each entry: the words of one, and of its amount.
_TABLES: Final = {
    "regions": (gettext_noop("Tokens in region {entry}"), gettext_noop("{amount} times the price")),
    "tools": (gettext_noop("Tool {entry}"), gettext_noop("{amount} per call")),
    "search_sizes": (gettext_noop("Web search of size {entry}"), _EACH_ONE),
}
_LONG: Final = gettext_noop("{price} above {tokens} tokens")
_AT_TIER: Final = gettext_noop("{price} at service tier {tier}")
_OF_EDITION: Final = gettext_noop("{price} ({edition})")
# A tier of service without prices of its own.
_TIER, _USUAL = gettext_noop("Service tier {tier}"), gettext_noop("the usual prices")
NO_PRICE: Final = gettext_noop("no price")
# Words of prices and amounts as they are made here, the specific ones first: readers of a text that is stored in
# English get their translations.
PRICE_SENTENCES: Final = (
    *(_OF_EDITION, _AT_TIER, _LONG, _TIER),
    *(words for words, _ in _TABLES.values()),
    *LABELS.values(),
)
AMOUNT_SENTENCES: Final = (NO_PRICE, _USUAL, *{*_AMOUNTS.values(), *(amount for _, amount in _TABLES.values())})


class StatedPrice(NamedTuple):
    """One price of a card: its words, and its amount with the unit, which is not named for a million tokens."""

    name: str
    amount: str


def name_of(price: str) -> str:
    """Return the label of a price by its name in the card; the name in words where it has no label."""
    return gettext(LABELS[price]) if price in LABELS else price.replace("_", " ").capitalize()


def stated_prices(card: Mapping[str, Any]) -> Iterator[StatedPrice]:
    """Yield each price of a stored card in the active language: those of its tables after the others."""
    yield from _prices(card)
    for tier, prices in _table(card, "service_tiers"):
        if not prices:
            yield StatedPrice(gettext(_TIER).format(tier=tier), gettext(_USUAL))
        for name, amount in _prices(prices):
            yield StatedPrice(gettext(_AT_TIER).format(price=name, tier=tier), amount)
    for table, (words, amount_words) in _TABLES.items():
        for entry, price in _table(card, table):
            yield StatedPrice(gettext(words).format(entry=entry), gettext(amount_words).format(amount=price))
    for edition, prices in _table(card, "editions"):
        for name, amount in stated_prices(prices):
            yield StatedPrice(gettext(_OF_EDITION).format(price=name, edition=edition), amount)


def _prices(card: Mapping[str, Any]) -> Iterator[StatedPrice]:
    """Yield the prices that are one amount, then those of long prompts."""
    stated = {name: price for name, price in card.items() if not isinstance(price, list | dict)}
    for name in (*(one for one in LABELS if one in stated), *(one for one in stated if one not in LABELS)):
        words = gettext(_AMOUNTS[name]) if name in _AMOUNTS else "{amount}"
        yield StatedPrice(name_of(name), words.format(amount=stated[name]))
    for tier in card["tiers"] if isinstance(card.get("tiers"), list) else ():
        tokens = count(tier["above_input_tokens"])
        for name, amount in _prices({name: price for name, price in tier.items() if name != "above_input_tokens"}):
            yield StatedPrice(gettext(_LONG).format(price=name, tokens=tokens), amount)


def _table(card: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a table; none of one that could not be read and is stored as text."""
    table = card.get(name)
    yield from table.items() if isinstance(table, dict) else ()
