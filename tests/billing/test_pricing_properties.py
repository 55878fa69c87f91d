"""For all counts of providers and all price cards: the formula holds to the last digit and never goes below 0."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.billing.pricing import FREE, Bill, Cost, bill_at, cost_by, cost_of
from apps.catalog.files import read_files
from apps.catalog.price_cards import read_card
from apps.kernel.prices import PriceCard, PriceTier
from apps.kernel.usage import Usage
from tests.billing.test_pricing import PARTS, PIECES, STEP, TABLES, TOKENS, UNITS, cards, shares, usages

PER_TOKEN = tuple(name for name in PriceCard.__struct_fields__ if name not in {*PIECES, *TABLES})
EDGE = 200_000


def exact_cost(usage: Usage, card: PriceCard) -> Fraction:
    """Return the cost by the specification's formula and its decisions, in fractions: apart from the product."""
    reached = sorted((t for t in card.tiers if usage.prompt_tokens > t.above_input_tokens), key=_edge)
    # When tiers begin alike, the first stated one applies.
    tier = next((t for t in card.tiers if reached and t.above_input_tokens == reached[-1].above_input_tokens), None)

    def price(name: str, otherwise: Fraction = Fraction(0)) -> Fraction:
        stated = getattr(tier, name, None)
        stated = getattr(card, name) if stated is None else stated
        return otherwise if stated is None else Fraction(stated)

    into, out = price("input"), price("output")
    write = price("cache_write", into)
    hour = price("cache_write_1h", write)
    tokens = (
        usage.input * into
        + usage.cache_read * price("cached_input", into)
        + usage.cache_write * write
        + usage.cache_write_1h * hour
        + usage.image_input * price("image_input", into)
        + usage.audio_input * price("audio_input", into)
        + (usage.output + usage.reasoning) * out
        + usage.image_output * price("image_output", out)
        + usage.audio_output * price("audio_output", out)
    )
    counted = usage.image_output and card.image_output is not None
    pieces = 0 if counted else usage.images * price("image")
    pieces += price("grounded_request") if usage.web_searches else 0
    pieces += usage.web_searches * price("web_search") + usage.search_units * price("search_unit")
    read_aloud = usage.characters * price("characters") / 1_000_000
    milliseconds = max(Fraction(usage.audio_milliseconds), price("audio_minimum") * 1_000)
    listened_to = milliseconds * price("audio_minute") / 60_000 if usage.audio_milliseconds else 0
    return tokens / 1_000_000 + pieces + price("request") + read_aloud + listened_to


def _edge(tier: PriceTier) -> int:
    return tier.above_input_tokens


@given(usages, cards)
def test_the_cost_is_the_formulas_to_the_last_digit(usage: Usage, card: PriceCard) -> None:
    """Half a step for each part that may need rounding: tokens at a price of six digits never do."""
    off = abs(Fraction(cost_of(usage, card).total) - exact_cost(usage, card))
    assert off <= Fraction(STEP), "only milliseconds can need rounding"
    if not usage.audio_milliseconds:
        assert off == 0


@given(usages, cards, st.sampled_from([*TOKENS, *UNITS]), st.integers(1, 10**6))
def test_more_of_anything_never_costs_less(usage: Usage, card: PriceCard, name: str, more: int) -> None:
    """But for pictures, which are paid by the piece only as long as their tokens are not counted."""
    card = msgspec.structs.replace(card, tiers=())
    if name == "image_output" and card.image_output is not None and not usage.image_output:
        usage = msgspec.structs.replace(usage, images=0)
    bigger = msgspec.structs.replace(usage, **{name: getattr(usage, name) + more})
    assert cost_of(bigger, card).total >= cost_of(usage, card).total


@given(st.integers(0, 3 * EDGE), st.integers(0, EDGE), st.integers(0, 10**6))
@example(fresh=EDGE, cached=0, written=1)
@example(fresh=EDGE, cached=1, written=1)
@example(fresh=0, cached=EDGE, written=1)
def test_a_tier_begins_with_the_first_token_above_its_edge(fresh: int, cached: int, written: int) -> None:
    tier = PriceTier(above_input_tokens=EDGE, input=Decimal(4), output=Decimal(18), cached_input=Decimal("0.4"))
    card = PriceCard(input=Decimal(2), output=Decimal(12), cached_input=Decimal("0.2"), tiers=(tier,))
    into, out, read = (4, 18, Decimal("0.4")) if fresh + cached > EDGE else (2, 12, Decimal("0.2"))
    expected = (fresh * into + written * out + cached * read) / Decimal(1_000_000)
    assert cost_of(Usage(input=fresh, cache_read=cached, output=written), card).total == expected


@given(usages, cards, shares)
def test_a_discount_saves_exactly_what_is_not_paid(usage: Usage, card: PriceCard, share: Decimal) -> None:
    full, cost = cost_of(usage, card), cost_of(usage, card, share)
    assert cost.discount_savings == full.total - cost.total >= 0
    assert abs(Fraction(cost.total) - Fraction(full.total) * (1 - Fraction(share))) <= len(PARTS) * Fraction(STEP)
    assert cost_of(usage, card, Decimal(0)) == full
    assert cost_of(usage, card, Decimal(1)).total == 0


@given(st.builds(Usage, **dict.fromkeys([*TOKENS, *UNITS], st.integers(-(10**12), 10**12))), cards)
def test_counts_below_nothing_are_nothing(usage: Usage, card: PriceCard) -> None:
    assert min(getattr(usage, name) for name in (*TOKENS, *UNITS)) >= 0
    assert usage.total_tokens == sum(getattr(usage, name) for name in TOKENS)
    cost = cost_of(usage, card)
    assert min(cost.total, *(getattr(cost, part) for part in PARTS)) >= 0


def test_a_negative_count_is_nothing_however_it_comes_to_be() -> None:
    assert Usage(input=-5, output=3) == Usage(output=3)
    assert msgspec.structs.replace(Usage(input=5), cache_read=-1) == Usage(input=5)
    assert msgspec.json.decode(b'{"input":-5,"output":2}', type=Usage) == Usage(output=2)


# --- the bill that is kept with each row

waivers = st.sampled_from(["", "", "", "failed", "empty", "cached"])
amounts = st.decimals(min_value=0, max_value=100, places=12)


@given(usages, cards, shares, amounts, amounts, waivers)
def test_a_kept_bill_counted_again_is_the_cost(
    usage: Usage, card: PriceCard, share: Decimal, hedge_cost: Decimal, saved: Decimal, waived: str
) -> None:
    bill = bill_at(card, used=usage, discount=share, hedge_cost=hedge_cost, hedge_savings=saved, waived=waived)
    kept = msgspec.json.decode(msgspec.json.encode(bill), type=Bill)
    cost = cost_by(kept)
    assert cost == cost_by(bill)
    if waived:
        assert cost == FREE
    else:
        assert cost.total == cost_of(usage, card, share).total + hedge_cost
        assert cost.total == sum(getattr(cost, name) for name in PARTS)
        assert cost.discount_savings == cost_of(usage, card, share).discount_savings + saved


def test_a_kept_bill_is_a_price_card_with_what_was_used() -> None:
    bill = bill_at(PriceCard(input=Decimal("2.5"), output=Decimal(10)), used=Usage(input=3), discount=Decimal("0.2"))
    assert msgspec.json.decode(msgspec.json.encode(bill)) == {
        "input": "2.5",
        "output": "10",
        "discount": "0.2",
        "used": {"input": 3},
    }
    assert cost_by(bill) == Cost(
        total=Decimal("0.000006"), input=Decimal("0.000006"), discount_savings=Decimal("0.0000015")
    )


# --- the catalog's facts

CATALOG = [(one.id, mapping) for one in read_files().providers for mapping in one.models]


def test_every_price_of_the_catalog_is_charged_to_the_last_digit() -> None:
    """A million tokens of a class cost its price, a piece its price; every entry of the catalog has prices."""
    assert len(CATALOG) > 1_000
    for provider, mapping in CATALOG:
        card = msgspec.structs.replace(mapping.card, tiers=())
        name = f"{provider}/{mapping.id}"
        assert not card.unpriced, name
        if card.input is not None:
            assert cost_of(Usage(input=1_000_000), card).input == card.input, name
        if card.output is not None:
            assert cost_of(Usage(output=1_000_000), card).output == card.output, name
        if card.cached_input is not None:
            assert cost_of(Usage(cache_read=1_000_000), card).cached_input == card.cached_input, name
        if card.cache_write is not None:
            assert cost_of(Usage(cache_write=1_000_000), card).cache_write == card.cache_write, name
        if card.cache_write_1h is not None:
            assert cost_of(Usage(cache_write_1h=1_000_000), card).cache_write == card.cache_write_1h, name
        if card.image is not None:
            assert cost_of(Usage(images=1), card).image_output == card.image, name
        if card.request is not None:
            assert cost_of(Usage(), card).request == card.request, name
        if card.web_search is not None:
            assert cost_of(Usage(web_searches=1), card).web_search == card.web_search, name
        if card.grounded_request is not None:
            assert cost_of(Usage(web_searches=3), card).web_search == card.grounded_request, name


def test_every_tier_of_the_catalog_begins_above_its_edge() -> None:
    tiered = [(name, mapping.card) for name, mapping in CATALOG if mapping.card.tiers]
    assert len(tiered) > 50
    for name, card in tiered:
        for tier in card.tiers:
            if tier.input is None:
                continue
            below = max(
                (t for t in card.tiers if t.above_input_tokens < tier.above_input_tokens), key=_edge, default=card
            )
            at, above = tier.above_input_tokens, tier.above_input_tokens + 1
            price = card.input if below.input is None else below.input
            assert price is not None
            assert cost_of(Usage(input=at), card).input == at * price / 1_000_000, name
            assert cost_of(Usage(input=above), card).input == above * tier.input / 1_000_000, name


@pytest.mark.parametrize(
    ("stated", "free", "unpriced"),
    [
        ({}, False, True),
        ({"input": "0", "output": "0"}, True, False),
        ({"input": "0"}, True, False),
        ({"input": "0", "output": "0", "web_search": "0.01"}, False, False),
        ({"input": "0", "output": "0", "audio_input": "1"}, False, False),
        ({"input": "0", "output": "0", "tiers": [{"above_input_tokens": 1000, "input": "1"}]}, False, False),
        ({"input": "0", "output": "1"}, False, False),
        ({"input": "0", "service_tiers": {"priority": {"input": "1"}}}, False, False),
        ({"input": "0", "tools": {"file_search": "0.0025"}}, False, False),
        ({"image": "0.04"}, False, False),
        ({"cached_input": "1"}, False, True),
        ({"web_search": "0.01"}, False, True),
    ],
)
def test_what_is_free_and_what_nobody_knows(stated: dict[str, Any], free: bool, unpriced: bool) -> None:
    card = read_card(stated)
    assert (card.free, card.unpriced) == (free, unpriced)
