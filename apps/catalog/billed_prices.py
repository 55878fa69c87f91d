"""Billed prices: the prices of a stored offer with all that changes them before a request: the provider's address and
an operator's overrides.

The catalog, the price history, previews and the admin's lists all take prices from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from apps.catalog.facts import AddressFactor
from apps.catalog.models import ModelProvider, Provider
from apps.catalog.price_cards import Edition, read_card, read_editions, write_card
from apps.kernel.prices import PriceCard, multiply_all_tokens


@dataclass(frozen=True, slots=True)
class BilledPrices:
    """The card of an offer, and that of each of its editions."""

    card: PriceCard
    editions: list[tuple[Edition, PriceCard]]

    def as_stored(self) -> dict[str, Any]:
        """Return the prices as the price history stores them: those of editions by each one's first name."""
        editions = {edition.names[0]: write_card(card) for edition, card in self.editions}
        return write_card(self.card) | ({"editions": editions} if editions else {})


def bill_prices(
    prices: Mapping[str, Any], overrides: Mapping[str, Any], factor: Decimal | None = None, editions: Any = ()
) -> BilledPrices:
    """Return the billed prices of a row's columns. `factor` is that of the provider's address (`find_factor`).

    An operator's prices are billed as they are; the factor holds for the file's. Raises ValueError or TypeError for
    prices that cannot be read.
    """
    card = read_card({**prices, **overrides})
    if factor is not None:
        own = {name: getattr(card, name) for name in overrides}
        card = msgspec.structs.replace(multiply_all_tokens(read_card(prices), factor), **own)
    return BilledPrices(card, [(one, _edition_card(one, card, factor)) for one in read_editions(editions)])


def _edition_card(edition: Edition, usual: PriceCard, factor: Decimal | None) -> PriceCard:
    """Return an edition's card: a share of the usual one, which has the address's factor, or prices of its own."""
    card = edition.card(usual)
    return card if factor is None or edition.factor is not None else multiply_all_tokens(card, factor)


def base_url_of(provider_id: str, stated: str, variables: Mapping[str, Any] | None = None) -> str:
    """Return a provider's address without a trailing slash: `<ID>_BASE_URL` of the environment, else the stated one.

    Placeholders are filled from the environment as `variables` defines; unresolved ones stay.
    """
    variable = f"{provider_id.upper().replace('-', '_')}_BASE_URL"
    address = os.environ.get(variable) or stated
    for name, source in (variables or {}).items():
        found = next((value for env in source["env"] if (value := os.environ.get(env))), source.get("default"))
        if found:
            address = address.replace(f"{{{name}}}", found)
    return address.rstrip("/")


def find_factor(model_id: str, address: str, stated: Iterable[Mapping[str, Any]]) -> Decimal | None:
    """Return what the provider's address multiplies a model's token prices by; None where it does not."""
    factors = (msgspec.convert(one, AddressFactor) for one in stated)
    return next((Decimal(one.factor) for one in factors if one.holds(model_id, address)), None)


def find_factor_of(provider: Provider, model_id: str, facts: Mapping[str, Any]) -> Decimal | None:
    """Return the factor of a stored provider's address for a model; `facts` are the mapping's own."""
    stated = facts.get("address_factors", provider.facts.get("address_factors", ()))
    if not stated:
        return None
    return find_factor(model_id, base_url_of(provider.id, provider.base_url, provider.facts.get("variables")), stated)


def bill_offer(offer: ModelProvider, overrides: Mapping[str, Any] | None = None) -> BilledPrices:
    """Return the billed prices of a stored offer, or those that it would have with other overrides.

    Raises ValueError or TypeError for prices that cannot be read.
    """
    factor = find_factor_of(offer.provider, offer.model_id, offer.facts)
    stated = offer.price_overrides if overrides is None else overrides
    return bill_prices(offer.prices, stated or {}, factor, offer.facts.get("editions", ()))
