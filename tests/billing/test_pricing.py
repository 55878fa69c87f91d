"""Where tokens meet prices: exact values, and what holds for every usage, card and discount."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.billing.pricing import FREE, Bill, Cost, at_share, cost_of
from apps.kernel.prices import PriceCard, PriceTier
from apps.kernel.usage import COUNTS, TOKEN_COUNTS, Usage

PARTS = ("input", "output", "cached_input", "cache_write", "image_input", "image_output", "request", "web_search")
UNITS = ("web_searches", "images", "characters", "audio_milliseconds", "search_units")
# Parts of the cached tokens that are counted apart are no classes of their own.
TOLD_APART = ("cache_read_audio", "cache_read_image")
TOKENS = tuple(name for name in TOKEN_COUNTS if name not in TOLD_APART)
# Prices on a price card, in USD each.
PIECES = ("image", "request", "web_search", "grounded_request", "audio_minute", "audio_minimum", "search_unit")
TABLES = ("tiers", "service_tiers", "regions", "tools", "search_sizes")
STEP = Decimal("0.000000000001")

prices = st.decimals(min_value=0, max_value=10_000, places=6)
pieces = st.decimals(min_value=0, max_value=100, places=12)
counts = st.integers(min_value=0, max_value=10**9)
usages = st.builds(Usage, **dict.fromkeys(TOKENS, counts), **dict.fromkeys(UNITS, st.integers(0, 100)))
tiers = st.builds(
    PriceTier,
    above_input_tokens=st.integers(1, 10**9),
    **{name: st.none() | prices for name in ("input", "output", "cached_input", "cache_write", "cache_write_1h")},
)
cards = st.builds(
    PriceCard,
    **{
        name: st.none() | (pieces if name in PIECES else prices)
        for name in PriceCard.__struct_fields__
        if name not in TABLES
    },
    tiers=st.lists(tiers, max_size=3).map(tuple),
)
shares = st.decimals(min_value=0, max_value=1, places=3)


def parts_of(cost: Cost) -> dict[str, Decimal]:
    """Return the parts that are not 0."""
    return {name: part for name in PARTS if (part := getattr(cost, name))}


def test_the_formula_of_the_specification() -> None:
    card = PriceCard(input=Decimal("2.5"), output=Decimal(10), cached_input=Decimal("1.25"), request=Decimal("0.001"))
    cost = cost_of(Usage(input=1000, cache_read=500, output=200), card)
    assert parts_of(cost) == {
        "input": Decimal("0.0025"),
        "output": Decimal("0.002"),
        "cached_input": Decimal("0.000625"),
        "request": Decimal("0.001"),
    }
    assert cost.total == Decimal("0.006125")
    assert (cost.discount_savings, cost.unpriced) == (Decimal(0), False)


def test_one_token_at_the_finest_price_costs_the_smallest_amount() -> None:
    assert cost_of(Usage(input=1), PriceCard(input=Decimal("0.000001"))).total == STEP


def test_a_missing_price_counts_as_zero() -> None:
    usage = Usage(input=1_000_000, output=1_000_000, images=3, web_searches=2)
    assert cost_of(usage, PriceCard(input=Decimal(3))).total == Decimal(3)


def test_no_price_at_all_costs_nothing_and_says_so() -> None:
    usage = Usage(input=1_000_000, output=1_000_000)
    assert cost_of(usage, PriceCard()) == msgspec.structs.replace(FREE, unpriced=True)
    assert cost_of(usage, PriceCard(input=Decimal(0), output=Decimal(0))).unpriced is False


CLASSES = [
    # a million tokens, the price of the class, the part it is in
    ({"cache_read": 1_000_000}, {"cached_input": Decimal("0.3")}, {"cached_input": Decimal("0.3")}),
    ({"cache_write": 1_000_000}, {"cache_write": Decimal("3.75")}, {"cache_write": Decimal("3.75")}),
    ({"cache_write_1h": 1_000_000}, {"cache_write_1h": Decimal(6)}, {"cache_write": Decimal(6)}),
    ({"cache_write_1h": 1_000_000}, {"cache_write": Decimal("3.75")}, {"cache_write": Decimal("3.75")}),
    ({"image_input": 1_000_000}, {"image_input": Decimal(5)}, {"image_input": Decimal(5)}),
    ({"image_output": 1_000_000}, {"image_output": Decimal(30)}, {"image_output": Decimal(30)}),
    ({"audio_input": 1_000_000}, {"audio_input": Decimal(40)}, {"input": Decimal(40)}),
    ({"audio_output": 1_000_000}, {"audio_output": Decimal(80)}, {"output": Decimal(80)}),
    ({"images": 2}, {"image": Decimal("0.04")}, {"image_output": Decimal("0.08")}),
    ({"web_searches": 3}, {"web_search": Decimal("0.01")}, {"web_search": Decimal("0.03")}),
    ({"characters": 1_000_000}, {"characters": Decimal(15)}, {"input": Decimal(15)}),
    ({"audio_milliseconds": 61_500}, {"audio_minute": Decimal("0.006")}, {"input": Decimal("0.00615")}),
    ({"search_units": 3}, {"search_unit": Decimal("0.002")}, {"request": Decimal("0.006")}),
]


@pytest.mark.parametrize(("used", "price", "parts"), CLASSES)
def test_a_class_with_a_price_of_its_own_is_paid_at_it(
    used: dict[str, int], price: dict[str, Decimal], parts: dict[str, Decimal]
) -> None:
    card = PriceCard(input=Decimal(3), output=Decimal(15), **price)
    assert parts_of(cost_of(Usage(**used), card)) == parts


def test_a_picture_is_paid_by_its_tokens_or_by_the_piece_and_never_by_both() -> None:
    card = PriceCard(image=Decimal("0.039"), image_output=Decimal(30))
    assert parts_of(cost_of(Usage(image_output=1_290, images=1), card)) == {"image_output": Decimal("0.0387")}
    assert parts_of(cost_of(Usage(images=2), card)) == {"image_output": Decimal("0.078")}
    by_the_piece = PriceCard(image=Decimal("0.039"), output=Decimal("2.5"))
    assert parts_of(cost_of(Usage(image_output=1_000_000, images=1), by_the_piece)) == {
        "output": Decimal("2.5"),
        "image_output": Decimal("0.039"),
    }


@pytest.mark.parametrize("name", ["cache_read", "cache_write", "cache_write_1h", "image_input", "audio_input"])
def test_what_is_read_without_a_price_of_its_own_is_input(name: str) -> None:
    card = PriceCard(input=Decimal(3), output=Decimal(15))
    assert parts_of(cost_of(Usage(input=1_000_000, **{name: 1_000_000}), card)) == {"input": Decimal(6)}


@pytest.mark.parametrize("name", ["reasoning", "image_output", "audio_output"])
def test_what_is_written_without_a_price_of_its_own_is_output(name: str) -> None:
    """Reasoning even with one."""
    card = PriceCard(input=Decimal(3), output=Decimal(15), reasoning=Decimal(60))
    assert parts_of(cost_of(Usage(output=1_000_000, **{name: 1_000_000}), card)) == {"output": Decimal(30)}


TIERED = PriceCard(
    input=Decimal(1),
    output=Decimal(10),
    cached_input=Decimal("0.1"),
    tiers=(
        PriceTier(above_input_tokens=200_000, input=Decimal(2), output=Decimal(15)),
        PriceTier(above_input_tokens=1_000_000, input=Decimal(4)),
    ),
)


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (Usage(input=200_000), "0.2"),
        (Usage(input=200_001), "0.400002"),
        # Everything that was read counts, and the whole request is paid at the tier's prices.
        (Usage(input=100_000, cache_read=100_001, output=1_000_000), "15.2100001"),
        # The highest tier alone: what it does not state is the card's.
        (Usage(input=1_000_001, output=1_000_000), "14.000004"),
    ],
)
def test_the_size_of_the_prompt_chooses_the_tier(usage: Usage, total: str) -> None:
    assert cost_of(usage, TIERED).total == Decimal(total)
    assert cost_of(usage, msgspec.structs.replace(TIERED, tiers=TIERED.tiers[::-1])).total == Decimal(total)


def test_a_discount_takes_its_share_of_every_part() -> None:
    card = PriceCard(input=Decimal(3), output=Decimal(15), request=Decimal("0.01"))
    cost = cost_of(Usage(input=1_000_000, output=1_000_000), card, Decimal("0.125"))
    assert parts_of(cost) == {"input": Decimal("2.625"), "output": Decimal("13.125"), "request": Decimal("0.00875")}
    assert (cost.total, cost.discount_savings) == (Decimal("15.75875"), Decimal("2.25125"))


def test_an_absurd_usage_has_a_cost_all_the_same() -> None:
    usage = Usage(input=10**30, output=10**30)
    assert cost_of(usage, PriceCard(input=Decimal("0.5"), output=Decimal(1))).total == Decimal("1.5e24")


@given(usages, cards, shares)
def test_the_total_is_the_sum_of_its_parts_to_the_last_digit(usage: Usage, card: PriceCard, share: Decimal) -> None:
    cost = cost_of(usage, card, share)
    assert cost.total == sum(getattr(cost, name) for name in PARTS)
    assert all(amount >= 0 and amount == amount.quantize(STEP) for amount in (cost.total, *parts_of(cost).values()))


@given(usages, cards)
def test_nothing_is_rounded_where_nothing_needs_to_be(usage: Usage, card: PriceCard) -> None:
    """Only a millisecond of audio can cost a fraction of the smallest amount."""
    usage = msgspec.structs.replace(usage, audio_milliseconds=0)
    card = msgspec.structs.replace(card, tiers=(), grounded_request=None)
    once, twice = cost_of(usage, card), cost_of(_doubled(usage), card)
    assert twice.total - twice.request == 2 * (once.total - once.request)


@given(usages, cards, st.sampled_from(TOKENS))
def test_no_token_is_paid_twice(usage: Usage, card: PriceCard, name: str) -> None:
    """One more token costs at most one token at the dearest of its prices, in exactly one part."""
    card = msgspec.structs.replace(card, tiers=())
    more = cost_of(msgspec.structs.replace(usage, **{name: getattr(usage, name) + 1}), card)
    less = cost_of(usage, card)
    risen = [part for part in PARTS if getattr(more, part) != getattr(less, part)]
    assert len(risen) <= 1
    token_prices = [
        price
        for field in PriceCard.__struct_fields__
        if field not in {*PIECES, *TABLES} and (price := getattr(card, field)) is not None
    ]
    dearest = max(token_prices, default=Decimal(0))
    assert 0 <= more.total - less.total <= dearest / 1_000_000 + STEP


@given(usages, cards, shares)
def test_what_a_discount_saves_and_what_is_paid_make_the_full_price(
    usage: Usage, card: PriceCard, share: Decimal
) -> None:
    full, cost = cost_of(usage, card), cost_of(usage, card, share)
    assert cost.total + cost.discount_savings == full.total
    assert abs(cost.discount_savings - full.total * share) <= STEP * len(PARTS)


def _doubled(usage: Usage) -> Usage:
    return Usage(**{name: 2 * getattr(usage, name) for name in COUNTS})


def test_a_batch_apis_share_is_that_of_tokens_in_every_tier_and_of_nothing_paid_by_the_piece() -> None:
    card = PriceCard(
        input=Decimal(3),
        cache_write=Decimal("3.75"),
        request=Decimal("0.01"),
        web_search=Decimal("0.02"),
        tiers=(PriceTier(above_input_tokens=10, input=Decimal(6)),),
    )
    assert at_share(card, Decimal("0.5")) == PriceCard(
        input=Decimal("1.5"),
        cache_write=Decimal("1.875"),
        request=Decimal("0.01"),
        web_search=Decimal("0.02"),
        tiers=(PriceTier(above_input_tokens=10, input=Decimal(3)),),
    )


def test_cached_tokens_have_a_share_of_their_own_where_a_batch_api_has_one() -> None:
    card = PriceCard(
        input=Decimal(2),
        cached_input=Decimal("0.2"),
        tiers=(PriceTier(above_input_tokens=10, input=Decimal(4), cached_input=Decimal("0.4")),),
    )
    assert at_share(card, Decimal("0.5"), Decimal(1)) == PriceCard(
        input=Decimal(1),
        cached_input=Decimal("0.2"),
        tiers=(PriceTier(above_input_tokens=10, input=Decimal(2), cached_input=Decimal("0.4")),),
    )


def test_a_stored_bill_keeps_its_first_names_of_hedge_costs() -> None:
    bill = Bill(hedge_cost=Decimal("1.5"), hedge_savings=Decimal(2))
    stored = msgspec.json.encode(bill)
    assert stored == b'{"outrun":"1.5","outrun_saved":"2"}'
    assert msgspec.json.decode(stored, type=Bill) == bill
