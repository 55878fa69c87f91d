"""The worst case holds the dearest that a request may lead to: tiers of service, regions, caches, sound, passes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.catalog import catalog_cache
from apps.catalog.offers import Catalog
from apps.catalog.price_cards import read_card
from apps.gateway.access.credentials import Credential
from apps.gateway.admission.worst_case import prices_of_passes, tariff_of
from apps.gateway.canonical.chat import Audio, CacheMark, Chat, FunctionTool, Image, Message, OpaqueTool, Text
from apps.gateway.routing.candidate import Candidate
from apps.kernel.prices import PriceCard, ServiceTier
from apps.kernel.usage import ModelPass, Usage
from tests.billing.test_price_factors import NAMES, whole_cards
from tests.billing.test_pricing import STEP, shares
from tests.catalog.small import model, offer

CARD = read_card(
    {
        "input": "2",
        "output": "10",
        "cache_write": "2.5",
        "cache_write_1h": "4",
        "audio_input": "40",
        "service_tiers": {"flex": {"input": "1", "output": "5"}, "priority": {"input": "4", "output": "20"}},
        "regions": {"us": "1.1"},
    }
)


def asking(*parts: Any, **fields: Any) -> Chat:
    message = Message(role="user", parts=list(parts) or [Text(text="hi")])
    return Chat(**{"model": "fox", "messages": [message], "max_tokens": 100, "dialect": "openai"} | fields)


def candidate(
    card: PriceCard, dialect: str = "anthropic", discount: Decimal = Decimal(0), mode: str = "credits", **facts: Any
) -> Candidate:
    facts["dialect"] = dialect
    one = offer("acme", "fox", prices=card, facts=facts, context_length=None, max_output=None)
    return Candidate(one, Credential(mode), "fox", discount)


@pytest.mark.parametrize(
    ("fields", "dialect", "total"),
    [
        ({}, "anthropic", "0.003"),
        ({"service_tier": "default"}, "anthropic", "0.003"),
        # Flex may be refused, and the usual tier served.
        ({"service_tier": "flex"}, "anthropic", "0.003"),
        ({"service_tier": "priority"}, "anthropic", "0.006"),
        ({"service_tier": "fast"}, "anthropic", "0.006"),
        # Whichever the provider chooses.
        ({"service_tier": "auto"}, "anthropic", "0.006"),
        ({"dialect": "anthropic", "extra": {"inference_geo": "us"}}, "anthropic", "0.0033"),
        # OpenAI writes to its cache unasked, Anthropic where the request asks for it.
        ({}, "openai", "0.0035"),
        ({"extra": {"cache_control": {"type": "ephemeral"}}}, "anthropic", "0.0035"),
        ({"extra": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}}, "anthropic", "0.005"),
    ],
)
def test_what_is_held_for_a_thousand_tokens_and_a_hundred(fields: dict[str, Any], dialect: str, total: str) -> None:
    tariff = tariff_of(asking(**fields), candidate(CARD, dialect), 1_000, "none")
    assert tariff.cost_of(100) == Decimal(total)


@pytest.mark.parametrize(
    ("mode", "by_account", "fields", "total"),
    [
        # The setting of the organization's own account decides, so the dearest tier is held for.
        ("api-keys", True, {}, "0.006"),
        ("api-keys", True, {"service_tier": "flex"}, "0.003"),
        ("api-keys", False, {}, "0.003"),
        ("credits", True, {}, "0.003"),
        ("credits", True, {"extra": {"top_logprobs": 1}}, "0.003"),
        ("credits", False, {"extra": {"inference_geo": "us"}, "service_tier": "flex"}, "0.0033"),
        ("credits", False, {"extra": {"inference_geo": "us"}, "service_tier": "auto"}, "0.0066"),
        ("credits", False, {"extra": {"inference_geo": "global"}}, "0.003"),
    ],
)
def test_the_tier_that_an_account_may_set_is_held_for(
    mode: str, by_account: bool, fields: dict[str, Any], total: str
) -> None:
    one = candidate(CARD, mode=mode, tier_by_account=by_account)
    chat = asking(**{"dialect": "anthropic"} | fields)
    assert tariff_of(chat, one, 1_000, "none").cost_of(100) == Decimal(total)


def test_a_region_alone_changes_a_price() -> None:
    one = candidate(PriceCard(input=Decimal(2), output=Decimal(10), regions={"us": Decimal("1.1")}))
    for extra, total in (({"inference_geo": "us"}, "0.0033"), ({"inference_geo": "eu"}, "0.003"), (None, "0.003")):
        chat = asking(dialect="anthropic", extra=extra)
        assert tariff_of(chat, one, 1_000, "none").cost_of(100) == Decimal(total)


def test_marks_sound_and_images_of_the_prompt_are_held_for() -> None:
    marked = asking(Text(text="hi", cache=CacheMark(ttl="1h")))
    assert tariff_of(marked, candidate(CARD), 1_000, "none").cost_of(100) == Decimal("0.005")
    heard = asking(Audio(data="", format="wav"))
    assert tariff_of(heard, candidate(CARD), 1_000, "none").cost_of(100) == Decimal("0.041")
    shown, card = asking(Image(url="https://a.test/a.png")), PriceCard(input=Decimal(2), image_input=Decimal(50))
    assert tariff_of(shown, candidate(card), 1_000, "none").base == Decimal("0.05")
    assert tariff_of(heard, candidate(card), 1_000, "none").base == Decimal("0.002")
    assert tariff_of(asking(), candidate(card), 1_000, "none").base == Decimal("0.002")
    # Where a kept prompt is the cheaper one, the usual price is held for.
    kept = PriceCard(input=Decimal(2), cache_write=Decimal(1))
    assert tariff_of(asking(), candidate(kept, "openai"), 1_000, "none").base == Decimal("0.002")


PLAIN = PriceCard(input=Decimal(2), output=Decimal(10))
COMPACT = {"type": "compact_20260112"}


@pytest.mark.parametrize(
    ("management", "dialect", "compacts"),
    [
        ({"edits": [COMPACT]}, "anthropic", True),
        ({"edits": [{"type": "clear_tool_uses_20250919"}, COMPACT]}, "anthropic", True),
        ({"edits": [{"type": "clear_tool_uses_20250919"}]}, "anthropic", False),
        # A value that is no list of edits is refused by the provider, and reads nothing a second time.
        ({"edits": [{"type": 7}, {}, "compact_20260112"]}, "anthropic", False),
        ({"edits": COMPACT}, "anthropic", False),
        ({"edits": None}, "anthropic", False),
        ([COMPACT], "anthropic", False),
        ({"edits": [COMPACT]}, "openai", False),
    ],
)
def test_compaction_reads_the_prompt_once_more_and_writes_a_summary(
    management: Any, dialect: str, compacts: bool
) -> None:
    chat = asking(dialect=dialect, extra={"context_management": management})
    summary = Decimal("0.002") + 16_384 * Decimal(10) / 1_000_000
    tariff = tariff_of(chat, candidate(PLAIN), 1_000, "none")
    assert tariff.cost_of(100) == Decimal("0.003") + (summary if compacts else 0)


@pytest.mark.parametrize(
    ("stated", "total"),
    [
        ({"max_uses": 2, "max_tokens": 2_000}, "0.33"),
        ({}, "0.9666"),
        ({"model": "unknown", "max_uses": 1}, "0.04296"),
        ({"max_uses": 1, "max_tokens": 1}, "0.015075"),
        # No number of tokens or calls: as many as usual.
        ({"max_uses": 0}, "0.9666"),
        ({"max_uses": -1}, "0.9666"),
        ({"max_uses": True}, "0.9666"),
        ({"max_uses": "1"}, "0.9666"),
        ({"max_uses": 1, "max_tokens": 0}, "0.3222"),
        ({"max_uses": 1, "max_tokens": 100_000}, "7.515"),
        ({"max_uses": 1, "max_tokens": 100_001}, "7.515"),
        ({"type": "web_search_20250305"}, "0"),
        ({"type": None}, "0"),
    ],
)
def test_an_advisor_is_held_for_at_the_price_of_the_model_that_it_asks(
    stated: dict[str, Any], total: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wise = offer("acme", "wise", prices=PriceCard(input=Decimal(15), output=Decimal(75)))
    catalog = Catalog(models={"wise": model("wise", wise)}, providers={"acme": wise.provider}, generation="1")
    monkeypatch.setattr(catalog_cache, "current", lambda: catalog)
    tool = OpaqueTool(dialect="anthropic", data={"type": "advisor_20260301", "model": "wise", **stated})
    function = FunctionTool(name="f")
    tariff = tariff_of(asking(dialect="anthropic", tools=[function, tool]), candidate(PLAIN), 1_000, "none")
    assert tariff.cost_of(100) - Decimal("0.003") == Decimal(total)
    # Each advisor is held for; other formats know none.
    twice = tariff_of(asking(dialect="anthropic", tools=[tool, tool]), candidate(PLAIN), 1_000, "none")
    assert twice.cost_of(100) - Decimal("0.003") == 2 * Decimal(total)
    assert tariff_of(asking(tools=[tool]), candidate(PLAIN), 1_000, "none").cost_of(100) == Decimal("0.003")


def test_passes_over_other_models_are_paid_at_their_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    wise = offer("acme", "wise", prices=PriceCard(input=Decimal(15), output=Decimal(75)))
    catalog = Catalog(models={"wise": model("wise", wise)}, providers={"acme": wise.provider}, generation="1")
    monkeypatch.setattr(catalog_cache, "current", lambda: catalog)
    names = ("", "fox", "fox-2026", "wise", "unknown")
    usage = Usage(passes=tuple(ModelPass(model=name, usage=Usage(input=1)) for name in names))
    one = offer("acme", "fox", model_name="fox-2026")
    assert prices_of_passes(usage, one) == {"wise": wise.prices}


def test_a_price_that_only_a_tier_states_is_held_for() -> None:
    card = PriceCard(service_tiers={"flex": ServiceTier(cache_write=Decimal(4), audio_input=Decimal(40))})
    written = tariff_of(asking(service_tier="flex"), candidate(card, "openai"), 1_000, "none")
    assert written.cost_of(100) == Decimal("0.004")
    heard = tariff_of(asking(Audio(data="", format="wav"), service_tier="flex"), candidate(card), 1_000, "none")
    assert heard.cost_of(100) == Decimal("0.04")


@given(
    whole_cards,
    shares,
    st.integers(0, 200_000),
    st.integers(0, 100),
    st.sampled_from(["input", "cache_write", "cache_write_1h", "audio_input"]),
    st.sampled_from([None, "default", "auto", *NAMES]),
    st.data(),
)
def test_no_answer_within_the_limits_costs_more_than_was_held(
    card: PriceCard, discount: Decimal, prompt: int, written: int, counted: str, asked: str | None, data: Any
) -> None:
    # A tier that was asked for and has no price is refused before.
    if asked in NAMES and asked not in card.service_tiers:
        asked = None
    chat = asking(Text(text="hi", cache=CacheMark(ttl="1h")), Audio(data="", format="wav"), service_tier=asked)
    answers = {None: [""], "default": [""], "auto": ["", *card.service_tiers]}.get(asked, ["", asked or ""])
    served = data.draw(st.sampled_from(answers))
    # A long prompt may be cheaper on a card that is made up: the tiers of prompts are tested in their place.
    tiers = {name: msgspec.structs.replace(tier, tiers=()) for name, tier in card.service_tiers.items()}
    card = msgspec.structs.replace(card, tiers=(), service_tiers=tiers)
    one = candidate(card, discount=discount)
    actual = one.cost_of(Usage(**{counted: prompt}, output=written, service_tier=served)).total
    # Each part of an answer's cost is rounded to the ledger's resolution.
    assert tariff_of(chat, one, prompt, "none").cost_of(100) >= actual - 16 * STEP


def test_a_pass_costs_what_it_was_held_for() -> None:
    """The sum of the holds for a compaction covers the largest one."""
    one = candidate(PriceCard(input=Decimal(2), output=Decimal(10)))
    chat = asking(dialect="anthropic", extra={"context_management": {"edits": [{"type": "compact_20260112"}]}})
    passes = (ModelPass(usage=Usage(input=1_000, output=16_384)), ModelPass(usage=Usage(input=1_000, output=100)))
    actual = one.cost_of(Usage(input=1_000, output=100, passes=passes)).total
    assert tariff_of(chat, one, 1_000, "none").cost_of(100) == actual
