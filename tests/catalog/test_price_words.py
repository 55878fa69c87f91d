"""Prices in words: each has a label, those of tables say what they are for, and units are named."""

from __future__ import annotations

from apps.catalog.price_words import LABELS, stated_prices
from apps.kernel.prices import PriceCard

# Members of a card that are no single amounts.
TABLES = {"tiers", "service_tiers", "regions", "tools", "search_sizes"}


def test_every_price_of_a_card_has_a_label() -> None:
    assert set(PriceCard.__struct_fields__) == set(LABELS) | TABLES


def test_prices_are_in_words_with_their_units() -> None:
    card = {
        "audio_minimum": "10",
        "characters": "15",
        "audio_minute": "0.006",
        "image": "0.04",
        "output": "10",
        "cache_write_1h": "2",
        "tiers": [{"above_input_tokens": 200_000, "input": "2.5"}],
        "service_tiers": {
            "flex": {"input": "0.6", "tiers": [{"above_input_tokens": 1_000, "output": "5"}]},
            "auto": {},
        },
        "regions": {"us": "1.1"},
        "tools": {"file_search": "0.0025"},
        "search_sizes": {"low": "0.005"},
        "editions": {"gpt-4o-2024-05-13": {"input": "5", "tools": {"code": "0.03"}}},
    }
    assert list(stated_prices(card)) == [
        ("Output", "10"),
        ("Cache write for an hour", "2"),
        ("Picture", "0.04 each"),
        ("Characters", "15 per million"),
        ("Sound", "0.006 per minute"),
        ("Shortest paid recording", "10 seconds"),
        ("Input above 200,000 tokens", "2.5"),
        ("Input at service tier flex", "0.6"),
        ("Output above 1,000 tokens at service tier flex", "5"),
        ("Service tier auto", "the usual prices"),
        ("Tokens in region us", "1.1 times the price"),
        ("Tool file_search", "0.0025 per call"),
        ("Web search of size low", "0.005 each"),
        ("Input (gpt-4o-2024-05-13)", "5"),
        ("Tool code (gpt-4o-2024-05-13)", "0.03 per call"),
    ]


def test_a_stored_price_that_cannot_be_read_is_shown_as_it_is() -> None:
    card = {"input": "free", "old_name": "3", "tools": "{'search': 1}", "tiers": "[5]"}
    assert list(stated_prices(card)) == [
        ("Input", "free"),
        ("Old name", "3"),
        ("Tools", "{'search': 1}"),
        ("Tiers", "[5]"),
    ]
