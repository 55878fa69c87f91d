"""Every name in the providers' files costs what a public price list says: an edition with another price is no alias."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

from apps.catalog.files import read_files
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard

# A provider's id and its own name of a model.
Name = tuple[str, str]
# USD per million tokens, read and written.
Prices = tuple[Decimal, Decimal]
# Names that cost something else here than there, and why.
EXCEPTIONS: Final[dict[Name, str]] = {
    ("cohere", "command-a-plus-05-2026"): "the list has 0, for a preview; Cohere charges for it",
}


def _public_prices() -> dict[Name, Prices]:
    lines = (Path(__file__).parent / "public_prices.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {(provider, name): (Decimal(read), Decimal(written)) for provider, name, read, written in rows}


def _own_prices() -> Iterator[tuple[Name, Prices]]:
    for file in read_files().providers:
        for mapping in file.models:
            names: dict[str, PriceCard] = dict.fromkeys(mapping.own_names, mapping.card)
            for edition in mapping.editions:
                names |= dict.fromkeys(edition.names, edition.card(mapping.card))
            for name, card in names.items():
                yield (file.id, name), (card.input or ZERO, card.output or ZERO)


def test_no_name_costs_another_price_than_the_public_list_says() -> None:
    public = _public_prices()
    differing = {at: (own, public[at]) for at, own in _own_prices() if own != public.get(at, own)}
    # Here and there: state the name among `editions` if its price is not its model's.
    assert {at: prices for at, prices in differing.items() if at not in EXCEPTIONS} == {}
    # An exception that is none any more goes.
    assert set(differing) == set(EXCEPTIONS)


def test_the_list_is_of_names_that_the_files_have() -> None:
    assert set(_public_prices()) <= {at for at, _ in _own_prices()}
