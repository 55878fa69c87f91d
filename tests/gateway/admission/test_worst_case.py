"""The worst case of a request, and how much an answer may have for its hold; exact, without a store."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from apps.billing.reservations import Hold
from apps.gateway.access.credentials import Credential
from apps.gateway.admission.worst_case import (
    SpendingAllowance,
    Tariff,
    WorstCase,
    allowance_of,
    estimate_least,
    estimate_worst_case,
    tariff_of,
)
from apps.gateway.canonical.chat import Chat, Message, ReasoningRequest, ResponseFormat, Text
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.upstream.failover import Hedge
from apps.kernel.prices import PriceCard, PriceTier
from tests.catalog.small import offer

USD = Decimal
CHEAP, DEAR = PriceCard(input=USD(1), output=USD(2)), PriceCard(input=USD(2), output=USD(10))


def asking(**fields: Any) -> Chat:
    message = Message(role="user", parts=[Text(text="hi")])
    return Chat(**{"model": "fox", "messages": [message], "max_tokens": 10_000, "stream": True} | fields)


# Fields of an offer that are no facts, and what they usually are here.
FIELDS = {"context_length": None, "max_output": None, "reasoning": False, "structured_outputs": False}


def candidate(card: PriceCard, mode: str = "credits", discount: str = "0", **facts: Any) -> Candidate:
    fields = {name: facts.pop(name, usual) for name, usual in FIELDS.items()}
    one = offer("acme", "fox", prices=card, facts={"dialect": "openai", **facts}, **fields)
    return Candidate(one, Credential(mode), "fox", USD(discount))


def worst(*of: Candidate, hedge: Hedge | None = None, **fields: Any) -> WorstCase:
    return estimate_worst_case(asking(**fields), Candidates(None, of), 1_000, hedge)


def amounts(one: WorstCase) -> list[Decimal]:
    return [one.cost, one.part, one.least, one.hedge_cost]


def test_the_dearest_candidate_is_held_for_whole_in_part_and_at_least() -> None:
    cheap, dear = candidate(CHEAP), candidate(DEAR)
    for order in ((cheap, dear), (dear, cheap)):
        found = worst(*order)
        assert amounts(found) == [USD("0.102"), USD("0.04296"), USD("0.00456"), 0]
        assert (found.prompt_tokens, found.from_credits) == (1_000, True)
        assert [one for one, _ in found.tariffs] == list(order)
    assert worst(cheap).tariffs[0][1] == Tariff(USD("0.001"), USD("0.000002"), 10_000, 4_096, 256, True)
    # A limit that the client sets for a whole answer is not lowered.
    assert amounts(worst(dear, max_tokens=100, stream=False)) == [USD("0.003"), USD("0.003"), USD("0.003"), 0]


def test_a_second_call_is_held_for_up_to_its_cap() -> None:
    both = candidate(CHEAP), candidate(DEAR)
    found = worst(*both, hedge=Hedge(None, USD("0.0015")))
    assert amounts(found) == [USD("0.1035"), USD("0.04446"), USD("0.00606"), USD("0.0015")]
    assert amounts(worst(*both, hedge=Hedge(None, USD(1)))) == [
        USD("0.104"),
        USD("0.04496"),
        USD("0.00656"),
        USD("0.002"),
    ]
    assert (found.prompt_tokens, found.from_credits, len(found.tariffs)) == (1_000, True, 2)


def test_credits_are_asked_for_where_a_candidate_that_costs_something_is_paid_from_them() -> None:
    own, free = candidate(DEAR, "api-keys"), candidate(PriceCard())
    assert worst(own).from_credits is False
    assert worst(free).from_credits is False
    assert worst(own, free).from_credits is False
    assert worst(own, candidate(CHEAP)).from_credits is True
    assert worst(candidate(CHEAP), own).from_credits is True


def test_the_least_is_the_cheapest_candidates_and_from_credits_where_all_are() -> None:
    cheap, dear = candidate(CHEAP), candidate(DEAR)
    found = estimate_least(asking(), Candidates(None, (dear, cheap)), 1_000, "none")
    assert (amounts(found), found.from_credits) == ([USD("0.021"), USD("0.009192"), USD("0.001512"), 0], True)
    mixed = estimate_least(asking(), Candidates(None, (cheap, candidate(DEAR, "api-keys"))), 1_000, "none")
    assert (mixed.cost, mixed.from_credits) == (USD("0.021"), False)


def test_the_tokens_that_an_amount_is_enough_for() -> None:
    tariff = Tariff(USD("0.002"), USD("0.00001"), 500, 500, 500)
    assert [tariff.tokens_for(USD(one)) for one in ("0.003", "0.0029999", "0.002", "0.001")] == [100, 99, 0, -100]
    assert Tariff(USD("0.002"), USD(0), 500, 500, 500).tokens_for(USD(0)) == 500
    assert tariff.cost_of(100) == USD("0.003")


def hold(nanos: int, **fields: Any) -> Hold:
    return Hold(**{"id": "1", "worker": "w", "amount_nanos": nanos, "balances": ("b",), "flight": "f"} | fields)


@pytest.mark.parametrize(
    ("nanos", "more", "limit"),
    [
        (3_000_000, {}, 100),
        (3_000_000, {"hedge_cost": USD("0.0005")}, 50),
        (3_000_000, {"tokens": 70}, 70),
        (3_000_000, {"tokens": 700}, 100),
        # One token costs 0.00001 USD; a hold that covers not even the prompt asks for one.
        (2_010_000, {}, 1),
        (1_000_000, {}, 1),
        (101_990_000, {}, 9_999),
        # All of it is covered.
        (102_000_000, {}, None),
        (3_000_000, {"n": 2}, 50),
        # A picture of 6,240 tokens is held beside the prompt, and counts against the limit.
        (67_400_000, {"images": True}, 6_540),
        (164_390_000, {"images": True}, 10_000),
        (276_800_000, {"images": True, "n": 2}, 10_000),
        # Beside a prompt of 1,000 tokens and a quarter more there is room for 750; for 256 it is tried.
        (12_000_000, {"context_length": 2_000}, 750),
        (7_000_000, {"context_length": 2_000}, 500),
        (7_000_000, {"context_length": 1_400}, 256),
    ],
)
def test_the_limit_of_an_answer_is_covered_by_its_hold(nanos: int, more: dict[str, Any], limit: int | None) -> None:
    facts = {name: more[name] for name in ("images", "context_length") if name in more}
    one, chat = candidate(DEAR, **facts), asking(n=more.get("n"))
    allowed = SpendingAllowance(
        chat, 1_000, "none", more.get("hedge_cost", USD(0)), hold(nanos, tokens=more.get("tokens"))
    )
    assert allowed.limit_of(one) == limit


def test_the_tariff_is_the_one_of_admission_until_the_prompt_was_counted() -> None:
    one, other, known = candidate(DEAR), candidate(CHEAP), Tariff(USD(7), USD(0), 1, 1, 1)
    allowed = SpendingAllowance(asking(), 1_000, "none", USD(0), hold(1), ((one, known),))
    assert allowed.tariff_of(one) is known
    assert allowed.tariff_of(other).base == USD("0.001")
    assert allowed.tariff_of(one, 2_000).base == USD("0.004")


def test_an_allowance_is_kept_where_an_answer_has_to_be_limited_or_watched() -> None:
    found, whole, stream = worst(candidate(DEAR)), asking(stream=False), asking()

    def allowed(chat: Chat, held: Hold | None) -> SpendingAllowance | None:
        return allowance_of(chat, found, held, "none")

    enough, less = hold(102_000_000), hold(101_999_999)
    assert allowed(whole, None) is None
    assert allowed(whole, enough) is None
    assert allowed(stream, enough) == SpendingAllowance(stream, 1_000, "none", USD(0), enough, found.tariffs)
    assert allowed(whole, less) == SpendingAllowance(whole, 1_000, "none", USD(0), less, found.tariffs)
    # Nothing is held on a balance; tokens are, where a limit counts them.
    assert allowed(stream, hold(1, balances=())) is None
    counted = hold(102_000_000, balances=(), tokens=5)
    assert allowed(whole, counted) == SpendingAllowance(whole, 1_000, "none", USD(0), counted, found.tariffs)


@pytest.mark.parametrize(
    ("card", "base", "per_token"),
    [
        (DEAR, "0.00201", "0.00001001"),
        (PriceCard(input=USD(2)), "0.00201", "0.00000001"),
        (PriceCard(output=USD(10)), "0.00001", "0.00001001"),
        # A free answer is kept for nothing.
        (PriceCard(), "0", "0"),
    ],
)
def test_an_answer_that_is_retained_is_held_for_with_its_storage(card: PriceCard, base: str, per_token: str) -> None:
    found = tariff_of(asking(), candidate(card), 1_000, "retain")
    assert (found.base, found.per_token, found.max_tokens) == (USD(base), USD(per_token), 10_000)


def test_a_task_without_an_answer_of_text_is_held_for_by_its_prompt() -> None:
    chat = asking(task="embeddings", stream=False)
    assert tariff_of(chat, candidate(DEAR), 1_000, "none") == Tariff(USD("0.002"), USD(0), 0, 0, 0)
    assert tariff_of(chat, candidate(DEAR), 1_000, "retain").base == USD("0.00201")
    assert tariff_of(chat, candidate(PriceCard()), 1_000, "retain").base == 0


@pytest.mark.parametrize(
    ("offered", "asked", "most"),
    [
        ({}, {}, 131_072),
        ({"context_length": 2_000}, {}, 2_000),
        ({"context_length": 2_000, "max_output": 500}, {}, 500),
        ({"max_output": 500}, {"max_tokens": 501}, 500),
        ({"max_output": 500}, {"max_tokens": 499}, 499),
        ({"max_output": 500}, {"n": 3}, 1_500),
        ({"max_output": 500}, {"n": 3, "max_tokens": 100}, 300),
    ],
)
def test_an_answer_is_as_long_as_client_and_model_allow(
    offered: dict[str, Any], asked: dict[str, Any], most: int
) -> None:
    chat = asking(**{"max_tokens": None, "stream": False} | asked)
    found = tariff_of(chat, candidate(DEAR, **offered), 1_000, "none")
    assert found.max_tokens == most
    # The client's own limit of a whole answer is not lowered; without one, a part of it may be enough.
    parts = (most, most) if "max_tokens" in asked else (min(4_096 * chat.answers, most), min(256 * chat.answers, most))
    assert (found.useful_tokens, found.min_tokens) == parts


@pytest.mark.parametrize(
    ("asked", "facts", "useful", "least", "is_visible"),
    [
        ({}, {"reasoning": False}, 4_096, 256, True),
        # A model that thinks unasked shows nothing of it, unless its provider has a field for its thoughts.
        ({}, {}, 16_384, 256, False),
        ({}, {"reasoning_field": "any"}, 16_384, 256, False),
        ({}, {"reasoning_field": "reasoning_content"}, 4_096, 256, True),
        ({}, {"dialect": "unknown"}, 16_384, 256, False),
        # Models of Anthropic's format think where they are asked to.
        ({}, {"dialect": "anthropic"}, 4_096, 256, True),
        ({"effort": "low"}, {"dialect": "anthropic"}, 16_384, 1_280, False),
        ({"reasoning": ReasoningRequest(effort="high")}, {"dialect": "anthropic"}, 16_384, 1_280, False),
        ({"reasoning": ReasoningRequest(max_tokens=1_500)}, {"dialect": "anthropic"}, 16_384, 1_756, False),
        ({"reasoning": ReasoningRequest(max_tokens=1_000)}, {"dialect": "anthropic"}, 16_384, 1_280, False),
        ({"reasoning": ReasoningRequest(summary="auto")}, {"dialect": "anthropic"}, 4_096, 256, True),
        ({"reasoning": ReasoningRequest(summary="auto"), "effort": "low"}, {}, 16_384, 1_280, False),
        # A number of tokens overrides the effort.
        ({"reasoning": ReasoningRequest(effort="none", max_tokens=1_500)}, {}, 16_384, 1_756, False),
        ({"reasoning": ReasoningRequest(effort="none")}, {}, 4_096, 256, True),
        ({"reasoning": ReasoningRequest(effort="none"), "effort": "low"}, {}, 4_096, 256, True),
        ({"extra": {"thinking": {"type": "enabled"}}}, {"dialect": "anthropic"}, 16_384, 1_280, False),
        ({"extra": {"thinking": {"type": "adaptive"}}}, {"dialect": "anthropic"}, 16_384, 1_280, False),
        ({"extra": {"thinking": {"type": "disabled"}}}, {"dialect": "anthropic"}, 4_096, 256, True),
        ({"extra": {"thinking": "enabled"}}, {"dialect": "anthropic"}, 4_096, 256, True),
        # A model that cannot think may yet be asked to.
        ({"effort": "low"}, {"reasoning": False}, 4_096, 1_280, True),
        ({"effort": "low", "n": 2}, {}, 32_768, 2_560, False),
        ({"effort": "low", "max_tokens": 1_000}, {}, 1_000, 1_000, False),
        # Nothing is seen at once of an answer that comes whole.
        ({"stream": False, "max_tokens": None}, {"reasoning": False}, 4_096, 256, False),
    ],
)
def test_a_part_that_is_useful_has_room_for_thinking(
    asked: dict[str, Any], facts: dict[str, Any], useful: int, least: int, is_visible: bool
) -> None:
    found = tariff_of(asking(**{"max_tokens": 100_000} | asked), candidate(DEAR, **{"reasoning": True} | facts), 9, "")
    assert (found.useful_tokens, found.min_tokens, found.is_visible) == (useful, least, is_visible)


@pytest.mark.parametrize(
    ("kind", "facts", "plugins", "is_visible"),
    [
        ("text", {}, ["response-healing"], True),
        ("json_object", {}, None, False),
        ("json_object", {"structured_outputs": True}, None, True),
        ("json_object", {"structured_outputs": True}, ["web"], True),
        ("json_schema", {"structured_outputs": True}, ["response-healing"], False),
    ],
)
def test_json_that_may_have_to_be_put_right_is_not_seen_at_once(
    kind: Any, facts: dict[str, Any], plugins: list[str] | None, is_visible: bool
) -> None:
    chat = asking(response_format=ResponseFormat(kind=kind), plugins=plugins)
    assert tariff_of(chat, candidate(DEAR, **facts), 1_000, "none").is_visible is is_visible


SPOKEN = PriceCard(input=USD(2), output=USD(10), audio_output=USD(40))
LONG = PriceCard(input=USD(2), output=USD(10), tiers=(PriceTier(above_input_tokens=500, output=USD(20)),))


@pytest.mark.parametrize(
    ("card", "asked", "prompt", "discount", "per_token"),
    [
        (DEAR, {}, 1_000, "0", "0.00001"),
        (DEAR, {}, 1_000, "0.2", "0.000008"),
        # An answer in sound is held for at the dearer of both prices.
        (SPOKEN, {"audio": {"voice": "alloy"}}, 1_000, "0", "0.00004"),
        (SPOKEN, {"audio": {"voice": "alloy"}}, 1_000, "0.5", "0.00002"),
        (PriceCard(output=USD(10), audio_output=USD(4)), {"audio": {"voice": "alloy"}}, 1_000, "0", "0.00001"),
        (SPOKEN, {}, 1_000, "0", "0.00001"),
        # A long prompt has a price of its own for the answer, too.
        (LONG, {}, 500, "0", "0.00001"),
        (LONG, {}, 501, "0", "0.00002"),
        (LONG, {}, 501, "0.5", "0.00001"),
        # The price of sound is none of text's.
        (replace(LONG, audio_output=USD(40)), {}, 500, "0", "0.00001"),
    ],
)
def test_a_token_of_an_answer_is_held_for_at_its_dearest(
    card: PriceCard, asked: dict[str, Any], prompt: int, discount: str, per_token: str
) -> None:
    found = tariff_of(asking(**asked), candidate(card, discount=discount), prompt, "none")
    assert found.per_token == USD(per_token)
    assert found.base == prompt * (card.input or 0) * (1 - USD(discount)) / 1_000_000


def test_storage_of_an_answer_that_is_more_than_simple_text() -> None:
    chat = asking(response_format=ResponseFormat(kind="json_object"))
    found = tariff_of(chat, candidate(DEAR), 1_000, "retain")
    assert (found.base, found.per_token) == (USD("0.00201"), USD("0.00001001"))
