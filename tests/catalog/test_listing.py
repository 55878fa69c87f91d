"""The listing's entries for models that the shipped catalog has no example of."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from apps.catalog.client_listings import build_model_info
from apps.catalog.model_listing import build_entry, build_listing
from apps.kernel.prices import PriceCard, ServiceTier
from tests.catalog.small import catalog, model, offer, provider

TODAY = date(2026, 11, 21)


def card(**prices: str) -> PriceCard:
    """A price card from texts."""
    return PriceCard(**{name: Decimal(price) for name, price in prices.items()})


@pytest.mark.parametrize(
    ("dear", "cheap"),
    [
        (card(input="3", output="1"), card(input="1", output="2.99")),
        (card(image="0.05"), card(image="0.04")),
        (card(input="5", image_output="40"), card(input="5", image_output="39")),
        (card(input="1", output="1", request="0.01"), card(input="4", output="7")),
        (card(input="100", output="100"), card(input="0", output="0")),
        # A model without a known price may cost anything.
        (card(), card(input="100", output="100")),
    ],
)
def test_the_cheapest_offer_gives_the_price(dear: PriceCard, cheap: PriceCard) -> None:
    offers = [
        offer("acme", "fox", prices=dear),
        offer(
            "bolt", "fox", prices=cheap, provider=provider("bolt", facts={"moderated": True}), facts={"moderated": 1}
        ),
    ]
    entry = build_entry(model("fox", *offers), offers)
    alone = build_entry(model("fox", *offers), offers[1:])
    assert entry["pricing"] == alone["pricing"] != build_entry(model("fox", *offers), offers[:1])["pricing"]
    assert entry["top_provider"]["is_moderated"] is True


def test_tokens_without_a_price_of_their_own_show_what_is_charged() -> None:
    one = offer("acme", "fox", prices=card(input="1.25", image_output="40"))
    assert build_entry(model("fox", one), [one])["pricing"] == {
        "prompt": "0.00000125",
        "completion": "0.00004",
        "input_cache_read": "0.00000125",
        "input_cache_write": "0.00000125",
        "internal_reasoning": "0",
        "image": "0",
        "request": "0",
        "web_search": "0",
    }


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, {"max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "stop"}),
        ({"temperature": False}, {"max_tokens"}),
        (
            {"facts": {"unsupported": ["frequency_penalty", "presence_penalty", "seed"]}},
            {"max_tokens", "temperature", "top_p", "stop"},
        ),
        (
            {"temperature": False, "tools": True, "tool_choice": True, "parallel_tools": True},
            {"max_tokens", "tools", "tool_choice", "parallel_tool_calls"},
        ),
        ({"temperature": False, "json_output": True}, {"max_tokens", "response_format"}),
        (
            {"temperature": False, "structured_outputs": True},
            {"max_tokens", "response_format", "structured_outputs"},
        ),
        ({"temperature": False, "reasoning": True}, {"max_tokens", "reasoning", "reasoning_effort"}),
        ({"temperature": False, "web_search": True}, {"max_tokens", "web_search"}),
    ],
)
def test_supported_parameters_follow_the_flags(changes: dict[str, Any], parameters: set[str]) -> None:
    one = offer("acme", "fox", **changes)
    supported = build_entry(model("fox", one), [one])["supported_parameters"]
    assert supported == sorted(parameters)


def test_a_parameter_is_supported_when_one_offer_understands_it() -> None:
    offers = [offer("acme", "fox", temperature=False), offer("bolt", "fox", temperature=False, tools=True)]
    assert build_entry(model("fox", *offers), offers)["supported_parameters"] == ["max_tokens", "tools"]


def test_everything_is_said_of_the_offers_that_are_shown() -> None:
    shown = offer("acme", "fox", json_output=True, stability="beta", context_length=500)
    hidden = offer("bolt", "fox", structured_outputs=True, prices=card(input="0", output="0"), context_length=900)
    entry = build_entry(model("fox", shown, hidden), [shown])
    assert (entry["json_output"], entry["structured_outputs"], entry["free"]) == (True, False, False)
    assert (entry["stability"], entry["context_length"]) == ("beta", 500)
    both = build_entry(model("fox", shown, hidden), [shown, hidden])
    assert (both["structured_outputs"], both["free"], both["stability"]) == (True, True, "stable")
    assert both["context_length"] == 900


def test_a_model_may_be_described_and_dated_or_not() -> None:
    one = offer("acme", "fox")
    unknown = build_entry(model("fox", one), [one])
    assert (unknown["created"], unknown["created_at"]) == (0, "1970-01-01T00:00:00Z")
    assert unknown["description"] == "Chat model of the small family: reads text, writes text."
    known = build_entry(model("fox", one, description="Quick and brown.", created=1_763_942_400), [one])
    assert (known["created"], known["description"]) == (1_763_942_400, "Quick and brown.")


def test_an_empty_catalog_is_an_empty_list() -> None:
    assert build_listing(catalog(), TODAY, include_deactivated=True, exclude_deprecated=False) == {
        "object": "list",
        "data": [],
        "total_count": 0,
        "links": {"next": None},
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


def test_prices_of_service_tiers_are_listed_beside_the_usual_ones() -> None:
    prices = PriceCard(
        input=Decimal(2),
        output=Decimal(10),
        cache_write_1h=Decimal(4),
        service_tiers={"flex": ServiceTier(input=Decimal(1), output=Decimal(5), cached_input=Decimal("0.1"))},
    )
    one = offer("acme", "fox", prices=prices)
    pricing = build_entry(model("fox", one), [one])["pricing"]
    assert {name: price for name, price in pricing.items() if name.endswith(("_flex", "_1h"))} == {
        "prompt_flex": "0.000001",
        "completion_flex": "0.000005",
        "input_cache_read_flex": "0.0000001",
        "input_cache_write_1h": "0.000004",
    }
    [entry] = build_model_info(catalog(model("fox", one)), TODAY)["data"]
    info = entry["model_info"]
    assert {name: info[name] for name in info if name.endswith(("_flex", "_1hr"))} == {
        "cache_creation_input_token_cost_above_1hr": 4e-06,
        "input_cost_per_token_flex": 1e-06,
        "output_cost_per_token_flex": 5e-06,
        "cache_read_input_token_cost_flex": 1e-07,
    }
