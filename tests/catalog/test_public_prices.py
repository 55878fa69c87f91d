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
# USD per million tokens, read and written, and from a cache; None where that is not stated.
Prices = tuple[Decimal, Decimal, Decimal | None]
# Names that cost something else here than there, and why.
EXCEPTIONS: Final[dict[Name, str]] = {
    ("cohere", "command-a-plus-05-2026"): "the list has 0, for a preview; Cohere charges for it",
    ("google", "gemini-4-argon"): "the list has the launch prices, which end on 2026-11-30",
    ("morph", "morph-dsv4flash"): "prices have six digits, and the list's are rounded up to them",
    ("sail", "zai-org/GLM-5.3"): "cached input has three digits at Sail, and the list's are rounded to cents",
    ("sail", "zai-org/GLM-5.3-Flash"): "cached input has three digits at Sail, and the list's are rounded to cents",
    ("vertex", "gemini-4-argon"): "the list has the launch prices, which end on 2026-11-30",
    ("vertex", "mistral-nemo@2407"): "the list has 3 for both; it is the version that `@latest` is, for 0.15",
}


def _public_prices() -> dict[Name, Prices]:
    lines = (Path(__file__).parent / "public_prices.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {
        (provider, name): (Decimal(read), Decimal(written), Decimal(cached[0]) if cached else None)
        for provider, name, read, written, *cached in rows
    }


def _own_prices() -> Iterator[tuple[Name, Prices]]:
    for file in read_files().providers:
        for mapping in file.models:
            names: dict[str, PriceCard] = dict.fromkeys(mapping.own_names, mapping.card)
            for edition in mapping.editions:
                names |= dict.fromkeys(edition.names, edition.card(mapping.card))
            for name, card in names.items():
                yield (file.id, name), (card.input or ZERO, card.output or ZERO, card.cached_input)


def _differ(own: Prices, public: Prices) -> bool:
    return own[:2] != public[:2] or public[2] not in (None, own[2])


def test_no_name_costs_another_price_than_the_public_list_says() -> None:
    public = _public_prices()
    differing = {at: (own, public[at]) for at, own in _own_prices() if at in public and _differ(own, public[at])}
    # Here and there: state the name among `editions` if its price is not its model's.
    assert {at: prices for at, prices in differing.items() if at not in EXCEPTIONS} == {}
    # An exception that is none any more goes.
    assert set(differing) == set(EXCEPTIONS)


def test_the_list_is_of_names_that_the_files_have() -> None:
    assert set(_public_prices()) <= {at for at, _ in _own_prices()}
