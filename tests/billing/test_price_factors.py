"""Factors of a price beside counts: tier of service, region, passes over models, tools that the provider runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.billing.pricing import Bill, at_share, bill_at, cost_by, cost_of, price_storage, price_text
from apps.catalog.files import read_files
from apps.catalog.price_cards import read_card, write_card
from apps.kernel.prices import TOKEN_PRICES, PriceCard, PriceTier, ServiceTier
from apps.kernel.usage import COUNTS, ModelPass, Usage, total_usage
from tests.billing.test_pricing import PARTS, STEP, cards, counts, pieces, prices, shares, tiers, usages

GPT = read_card(
    {
        "input": "1.75",
        "output": "14",
        "cached_input": "0.175",
        "service_tiers": {
            "flex": {"input": "0.875", "output": "7", "cached_input": "0.0875"},
            "priority": {"input": "3.5", "output": "28"},
        },
        "regions": {"us": "1.1"},
        "tools": {"file_search": "0.0025", "web_fetch": "0"},
    }
)
ASKED = {"input": 10_000, "output": 1_000, "cache_read": 1_000_000}


@pytest.mark.parametrize(
    ("tier", "region", "total"),
    [
        ("", "", "0.2065"),
        ("default", "", "0.2065"),
        ("flex", "", "0.10325"),
        # Prices that the tier does not state are the usual ones.
        ("priority", "", "0.238"),
        ("unheard-of", "", "0.2065"),
        ("", "us", "0.22715"),
        ("flex", "us", "0.113575"),
        ("flex", "global", "0.10325"),
    ],
)
def test_the_tier_and_the_region_that_served_are_paid(tier: str, region: str, total: str) -> None:
    usage = Usage(**ASKED, service_tier=tier, region=region)
    assert cost_of(usage, GPT).total == Decimal(total)
    bill = bill_at(GPT, used=usage)
    assert (bill.service_tiers, bill.regions) == ({}, {}), "the bill has the prices in force, and no others"
    assert cost_by(msgspec.json.decode(msgspec.json.encode(bill), type=Bill)).total == Decimal(total)


LONG = PriceTier(above_input_tokens=1_000, input=Decimal(4), output=Decimal(10))


@pytest.mark.parametrize(
    ("tier", "written", "input_", "output"),
    [
        # Its own price for long prompts.
        ({"input": "1", "tiers": [{"above_input_tokens": 1000, "input": "3"}]}, 1, "3", "5"),
        # None: not less than the usual one for long prompts, nor than the tier's own for short ones.
        ({"input": "1", "output": "2"}, 1, "4", "10"),
        ({"input": "6", "output": "20"}, 1, "6", "20"),
    ],
)
def test_a_long_prompt_at_a_tier_of_service(tier: dict[str, object], written: int, input_: str, output: str) -> None:
    stated = {"input": "2", "output": "5", "tiers": [{"above_input_tokens": 1000, "input": "4", "output": "10"}]}
    card = read_card({**stated, "service_tiers": {"x": tier}})
    cost = cost_of(Usage(input=1_001, output=written, service_tier="x"), card)
    assert cost.input == 1_001 * Decimal(input_) / 1_000_000
    assert cost.output == written * Decimal(output) / 1_000_000


def test_a_batch_has_its_share_of_the_usual_prices_and_no_tiers_of_service() -> None:
    half = at_share(GPT, Decimal("0.5"))
    assert cost_of(Usage(**ASKED, service_tier="priority"), half).total == Decimal("0.10325")
    assert cost_of(Usage(**ASKED, region="us"), half).total == Decimal("0.113575")


def test_passes_are_paid_instead_of_the_counts_beside_them_each_at_its_model_and_length() -> None:
    card = PriceCard(input=Decimal(2), output=Decimal(5), web_search=Decimal("0.01"), tiers=(LONG,))
    passes = (
        ModelPass(usage=Usage(input=1_000, output=10)),
        ModelPass(usage=Usage(input=1_001, output=10)),
        ModelPass(model="wise", usage=Usage(input=100, output=100)),
        ModelPass(model="unknown", usage=Usage(input=100)),
    )
    usage = Usage(input=1_000, output=20, web_searches=2, passes=passes)
    bill = bill_at(card, used=usage, models={"wise": PriceCard(input=Decimal(15), output=Decimal(75))})
    cost = cost_by(msgspec.json.decode(msgspec.json.encode(bill), type=Bill))
    assert cost.input == Decimal("0.002") + Decimal("0.004004") + Decimal("0.0015") + Decimal("0.0002")
    assert cost.output == Decimal("0.00005") + Decimal("0.0001") + Decimal("0.0075")
    assert cost.web_search == Decimal("0.02")
    assert cost.total == cost.input + cost.output + cost.web_search


def test_tools_of_the_providers_are_paid_by_the_call_and_one_without_a_price_is_told() -> None:
    called = cost_of(Usage(tool_calls={"file_search": 3, "web_fetch": 2}), GPT)
    assert (called.request, called.total, called.unpriced) == (Decimal("0.0075"), Decimal("0.0075"), False)
    assert cost_of(Usage(tool_calls={"x_search": 1}), GPT).unpriced is True


def test_a_grounded_request_is_paid_once_however_often_it_searched() -> None:
    card = PriceCard(input=Decimal("0.3"), grounded_request=Decimal("0.035"))
    assert [cost_of(Usage(web_searches=count), card).web_search for count in (0, 1, 4)] == [
        Decimal(0),
        Decimal("0.035"),
        Decimal("0.035"),
    ]


@pytest.mark.parametrize(
    ("used", "cost"),
    [
        ({"web_searches": 1, "search_size": "low"}, "0.005"),
        ({"web_searches": 2, "search_size": "high"}, "0.024"),
        ({"web_searches": 1, "search_size": "huge"}, "0.008"),
        ({"web_searches": 1, "search_size": "high", "reported_search_cost": Decimal("0.0061")}, "0.0061"),
        ({}, "0"),
    ],
)
def test_a_search_is_paid_by_its_size_unless_the_provider_says_what_it_took(used: dict[str, Any], cost: str) -> None:
    card = read_card({"input": "1", "web_search": "0.008", "search_sizes": {"low": "0.005", "high": "0.012"}})
    assert cost_of(Usage(**used), card).web_search == Decimal(cost)
    # Elsewhere nothing that an answer says of money counts.
    plain = PriceCard(input=Decimal(1), web_search=Decimal("0.008"))
    assert cost_of(Usage(**used), plain).web_search == used.get("web_searches", 0) * Decimal("0.008")


@pytest.mark.parametrize(("count", "cost"), [(0, "0"), (1, "0.025"), (3, "0.025")])
def test_who_pays_searches_by_the_request_pays_maps_so(count: int, cost: str) -> None:
    stated = {"input": "1", "tools": {"google_maps": "0.025", "x_search": "0.005"}}
    usage = Usage(tool_calls={"google_maps": count, "x_search": 2})
    by_request = read_card({**stated, "grounded_request": "0.035"})
    assert cost_of(usage, by_request).request == Decimal(cost) + Decimal("0.01")
    assert cost_of(usage, read_card(stated)).request == count * Decimal("0.025") + Decimal("0.01")


@pytest.mark.parametrize("told", ["0", "0.00000001", "0.0314", "0.5"])
@pytest.mark.parametrize("discount", ["0", "0.1"])
def test_what_the_provider_says_that_an_answer_cost_is_paid(told: str, discount: str) -> None:
    """By our prices it would be 0.0315 + 0.0025, and a tool without a price."""
    calls = {"file_search": 1, "unheard_of": 1}
    usage = Usage(input=10_000, output=1_000, tool_calls=calls, reported_cost=Decimal(told))
    bill = bill_at(GPT, used=usage, discount=Decimal(discount))
    cost = cost_by(msgspec.json.decode(msgspec.json.encode(bill), type=Bill))
    # A discount rounds each part.
    assert abs(cost.total - Decimal(told) * (1 - Decimal(discount))) <= (len(PARTS) * STEP if Decimal(discount) else 0)
    assert cost.total == sum(getattr(cost, part) for part in PARTS)
    assert cost.unpriced is False
    if told == "0.5":
        assert (cost.input, cost.output) == (Decimal("0.0175") * (1 - Decimal(discount)), cost.input * 4 / 5)


def test_several_answers_have_a_cost_of_their_own_where_each_says_one() -> None:
    one, other = Usage(input=1, reported_cost=Decimal("0.1")), Usage(input=2, reported_cost=Decimal("0.2"))
    assert total_usage([one, other]) == Usage(input=3, reported_cost=Decimal("0.3"))
    assert total_usage([one, Usage(input=2)]) == Usage(input=3)


def test_a_recording_is_paid_for_its_least_length() -> None:
    card = PriceCard(audio_minute=Decimal("0.06"), audio_minimum=Decimal(10))
    assert [cost_of(Usage(audio_milliseconds=it), card).total for it in (0, 1, 10_000, 11_000)] == [
        Decimal(0),
        Decimal("0.01"),
        Decimal("0.01"),
        Decimal("0.011"),
    ]


def test_cached_sound_and_pictures_have_prices_of_their_own() -> None:
    card = PriceCard(input=Decimal(1), cached_input=Decimal("0.1"), cached_audio=Decimal("0.4"))
    usage = Usage(cache_read=1_000_000, cache_read_audio=250_000, cache_read_image=250_000)
    assert cost_of(usage, card).cached_input == Decimal("0.175")
    # More than all that was read from the cache is not paid.
    assert cost_of(Usage(cache_read=1, cache_read_audio=1_000_000), card).cached_input == Decimal("0.0000004")

    # The same of pictures, beside sound.
    both = msgspec.structs.replace(card, cached_image=Decimal("0.2"))
    assert cost_of(usage, both).cached_input == Decimal("0.05") + Decimal("0.1") + Decimal("0.05")
    assert cost_of(Usage(cache_read=1, cache_read_image=1_000_000), both).cached_input == Decimal("0.0000002")
    # Without a price of their own they cost what text does.
    plain = PriceCard(cached_input=Decimal("0.1"))
    assert cost_of(usage, plain).cached_input == Decimal("0.1")


def test_a_cost_that_the_provider_states_is_shared_out_over_the_parts() -> None:
    card = PriceCard(input=Decimal(1), output=Decimal(3))
    asked = Usage(input=1_000_000, output=1_000_000)
    less = cost_of(msgspec.structs.replace(asked, reported_cost=Decimal(2)), card)
    assert (less.total, less.input, less.output, less.request) == (2, Decimal("0.5"), Decimal("1.5"), 0)
    more = cost_of(msgspec.structs.replace(asked, reported_cost=Decimal(5)), card)
    assert (more.total, more.input, more.output, more.request) == (5, 1, 3, 1)
    # The part that cannot be divided goes to the largest.
    third = PriceCard(input=Decimal(1), output=Decimal(2))
    least = cost_of(msgspec.structs.replace(asked, reported_cost=STEP), third)
    assert (least.total, least.input, least.output) == (STEP, 0, STEP)
    same = PriceCard(input=Decimal(1), output=Decimal(1))
    assert cost_of(msgspec.structs.replace(asked, reported_cost=STEP), same).total == STEP
    assert cost_of(Usage(reported_cost=Decimal(2)), card).total == 2


def test_a_bill_has_the_prices_of_the_region_or_the_tier_alone() -> None:
    regional = PriceCard(input=Decimal(1), regions={"us": Decimal("1.5")})
    tiered = PriceCard(input=Decimal(1), service_tiers={"flex": ServiceTier(input=Decimal("0.5"))})
    asked = Usage(input=1_000_000, region="us", service_tier="flex")
    assert [bill_at(card, used=asked).input for card in (regional, tiered)] == [Decimal("1.5"), Decimal("0.5")]
    # A bill is billed again where its answer failed.
    again = bill_at(bill_at(regional, used=asked), waived="failed")
    assert (again.input, again.used, cost_by(again).total) == (Decimal("1.5"), Usage(), 0)


@pytest.mark.parametrize(
    ("card", "discount"),
    [
        (PriceCard(input=Decimal(2), output=Decimal(3)), "0"),
        (PriceCard(input=Decimal(2), output=Decimal(3)), "0.25"),
        (PriceCard(input=Decimal(2), output=Decimal(3), request=Decimal("0.5")), "0"),
        (PriceCard(input=Decimal(2), output=Decimal(3), tiers=(LONG,)), "0"),
    ],
)
def test_text_costs_what_its_usage_does(card: PriceCard, discount: str) -> None:
    share = Decimal(discount)
    expected = cost_of(Usage(input=2_000, output=1_000), card, share).total
    assert price_text(2_000, 1_000, card, share) == expected > 0


def test_text_with_one_of_two_prices_is_priced() -> None:
    usage = Usage(input=1, output=1)
    assert [cost_of(usage, PriceCard(**{name: Decimal(1)})).unpriced for name in ("input", "output")] == [False, False]
    assert cost_of(usage, PriceCard()).unpriced is True
    # A card of other units has a price, and text costs nothing.
    assert cost_of(usage, PriceCard(image=Decimal(1))).unpriced is False


@pytest.mark.parametrize(("level", "cost"), [("retain", "0.01"), ("metadata", "0"), ("none", "0")])
def test_only_content_that_is_retained_is_paid_for(level: str, cost: str) -> None:
    assert price_storage(1_000_000, level) == Decimal(cost)


def test_usages_are_added_up_with_what_they_say_beside_their_counts() -> None:
    one = Usage(input=1, tool_calls={"a": 1}, passes=(ModelPass(usage=Usage(input=1)),))
    other = Usage(input=2, tool_calls={"a": 2, "b": 1}, service_tier="flex", region="us")
    assert total_usage([one, other]) == Usage(
        input=3, tool_calls={"a": 3, "b": 1}, service_tier="flex", region="us", passes=one.passes
    )


# --- whatever is combined

NAMES = ("flex", "priority")
service_tiers = st.builds(
    ServiceTier,
    **{name: st.none() | prices for name in ServiceTier.__struct_fields__ if name != "tiers"},
    tiers=st.lists(tiers, max_size=2).map(tuple),
)
whole_cards = st.builds(
    msgspec.structs.replace,
    cards,
    service_tiers=st.dictionaries(st.sampled_from(NAMES), service_tiers),
    regions=st.dictionaries(st.just("us"), st.decimals(1, 2, places=2)),
    tools=st.dictionaries(st.sampled_from(["file_search", "code_interpreter"]), pieces),
)
whole_usages = st.builds(
    msgspec.structs.replace,
    usages,
    service_tier=st.sampled_from(["", "default", *NAMES]),
    region=st.sampled_from(["", "global", "us"]),
    cache_read_audio=counts,
    cache_read_image=counts,
    tool_calls=st.none() | st.dictionaries(st.sampled_from(["file_search", "code_interpreter"]), st.integers(0, 100)),
    reported_cost=st.none() | st.decimals(0, 100, places=10),
    passes=st.lists(st.builds(ModelPass, model=st.sampled_from(["", "wise"]), usage=usages), max_size=3).map(tuple),
)


@given(whole_usages, whole_cards, cards, shares)
def test_the_parts_add_up_to_the_total_whatever_is_combined(
    usage: Usage, card: PriceCard, other: PriceCard, discount: Decimal
) -> None:
    bill = bill_at(card, used=usage, discount=discount, models={"wise": other})
    cost = cost_by(bill)
    assert cost.total == sum(getattr(cost, part) for part in PARTS)
    assert min(cost.total, *(getattr(cost, part) for part in PARTS)) >= 0
    assert cost_by(msgspec.json.decode(msgspec.json.encode(bill), type=Bill)) == cost
    assert abs(cost.total - cost_of(usage, card, discount, {"wise": other}).total) <= len(PARTS) * STEP


@given(whole_cards)
def test_a_card_is_read_back_as_it_was_written(card: PriceCard) -> None:
    assert read_card(write_card(card)) == card


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"service_tiers": {"flex": {"inptu": 1}}}, "unknown price `inptu`"),
        ({"service_tiers": {"flex": {"web_search": 1}}}, "unknown price `web_search`"),
        ({"service_tiers": {"flex": {"input": -1}}}, "`input` must be between 0"),
        ({"service_tiers": {"Flex!": {}}}, "no name of a service tier"),
        ({"service_tiers": {"flex": {"tiers": [{"above_input_tokens": 1, "x": 1}]}}}, "unknown price `x`"),
        ({"regions": {"us": "11"}}, "`regions.us` must be between 0 and 10"),
        ({"regions": {"us": "0"}}, "`regions.us` must be at least 0.1"),
        ({"tools": {"file_search": "-1"}}, "`tools.file_search` must be between 0 and 100"),
    ],
)
def test_a_price_that_cannot_be_meant_is_refused_by_name(stated: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        read_card(stated)


# --- the catalog's facts


def test_tiers_of_the_catalog_cost_what_they_say() -> None:
    """Flex costs no more than the usual, priority no less: a mistake in a data file would show."""
    tiered = [
        (file.id, mapping.id, name, tier, mapping.card)
        for file in read_files().providers
        for mapping in file.models
        for name, tier in mapping.card.service_tiers.items()
    ]
    assert len(tiered) > 150
    for provider, model, name, tier, card in tiered:
        for price in set(TOKEN_PRICES) & set(ServiceTier.__struct_fields__):
            usual, own = getattr(card, price), getattr(tier, price)
            if usual is None or own is None:
                continue
            assert (own <= usual) if name == "flex" else (own >= usual), f"{provider}/{model} {name} {price}"


def test_a_reported_cost_is_stored_under_its_first_name() -> None:
    usage = Usage(input=1, reported_search_cost=Decimal("0.006"), reported_cost=Decimal("0.5"))
    stored = b'{"input":1,"told_search_cost":"0.006","told_cost":"0.5"}'
    assert msgspec.json.encode(usage) == stored
    assert msgspec.json.decode(stored, type=Usage) == usage


def test_every_count_is_a_number_and_nothing_else_is() -> None:
    assert all(type(getattr(Usage(), name)) is int for name in COUNTS)
    beside = {name for name in Usage.__struct_fields__ if name not in COUNTS}
    assert beside == {
        *("estimated", "tool_calls", "search_size", "reported_search_cost", "reported_cost"),
        *("service_tier", "region", "passes"),
    }
