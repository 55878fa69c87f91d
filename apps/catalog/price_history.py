"""Price history: the prices of every model at every provider over time, and who changed them. Rows are only added."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from apps.catalog.models import ModelProvider, PriceChange
from apps.catalog.price_cards import read_card, write_card, write_cards

# Ids of a provider and a model.
At = tuple[str, str]
Card = dict[str, Any]
# Author of price changes from the data files.
LOADER = "load_catalog"


class PriceStep(NamedTuple):
    """One changed price; None if there was or is none."""

    name: str
    old: str | None
    new: str | None


def effective_card(prices: Mapping[str, Any], overrides: Mapping[str, Any], editions: Any = None) -> Card:
    """Return the charged prices, as a row stores them; unreadable ones unchanged.

    `editions` are those in the row's facts: their prices are under that key, by each edition's first name.
    """
    whole = {**prices, **overrides}
    try:
        card = read_card(whole)
        return write_card(card) | ({"editions": write_cards(editions, card)} if editions else {})
    except (ValueError, TypeError):
        return {name: str(price) for name, price in whole.items()}


def card_of(row: ModelProvider) -> Card:
    """Return the charged prices of a mapping."""
    return effective_card(row.prices, row.price_overrides, row.facts.get("editions"))


def cards_now() -> dict[At, Card]:
    """Return the prices of every mapping."""
    rows = ModelProvider.objects.values_list("provider_id", "model_id", "prices", "price_overrides", "facts__editions")
    return {(provider, model): effective_card(*stated) for provider, model, *stated in rows}


def note_changes(before: Mapping[At, Card], after: Mapping[At, Card], author: str | Mapping[At, str]) -> int:
    """Record the changes in the caller's transaction; return how many mappings changed.

    `author` may differ from mapping to mapping; the data files' is the default then.
    """
    authors = {} if isinstance(author, str) else author
    usual = author if isinstance(author, str) else LOADER
    rows = [
        PriceChange(provider=at[0], model=at[1], old=before.get(at, {}), new=card, author=authors.get(at, usual)[:254])
        for at, card in sorted(after.items())
        if card != before.get(at, {})
    ]
    PriceChange.objects.bulk_create(rows)
    return len(rows)


def history_of(mapping: ModelProvider, most: int) -> list[PriceChange]:
    """Return the latest price changes of a mapping, newest first."""
    rows = PriceChange.objects.filter(model=mapping.model_id, provider=mapping.provider_id)
    return list(rows.order_by("-id")[:most])


def find_model_changes(models: Collection[str], since: datetime, most: int) -> list[PriceChange]:
    """Return the latest price changes of models at all providers since a moment, newest first.

    A mapping's first prices are among them: they replace an empty card.
    """
    rows = PriceChange.objects.filter(model__in=models, created_at__gte=since)
    return list(rows.order_by("-id")[:most])


def steps_of(change: PriceChange) -> Iterator[PriceStep]:
    """Yield each changed price."""
    for name in sorted({*change.old, *change.new}):
        old, new = change.old.get(name), change.new.get(name)
        if old != new:
            yield PriceStep(name, text_of(old), text_of(new))


def text_of(price: Any) -> str | None:
    """Return a price as text, or prices by prompt length, service tier, region or tool."""
    if price is None or isinstance(price, str):
        return price
    if isinstance(price, list):
        return "; ".join(_tier(tier) for tier in price)
    if isinstance(price, dict):
        return "; ".join(f"{name}: {_named(stated)}" for name, stated in price.items())
    return str(Decimal(str(price)))


def _named(stated: Any) -> str | None:
    """Return the prices of a service tier, or the price of a tool."""
    if not isinstance(stated, dict):
        return text_of(stated)
    return ", ".join(f"{name} {text_of(price)}" for name, price in stated.items()) or "the usual prices"


def _tier(tier: Mapping[str, Any]) -> str:
    prices = ", ".join(f"{name} {price}" for name, price in tier.items() if name != "above_input_tokens")
    return f"above {tier.get('above_input_tokens')} tokens: {prices}"
