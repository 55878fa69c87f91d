"""Searches of the web and calls of a provider's tools: so many are held for, and the provider may make no more."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.catalog.models import ModelProvider
from apps.catalog.price_cards import read_card
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential
from apps.gateway.admission.worst_case import tariff_of
from apps.gateway.canonical.chat import Chat, FunctionTool, OpaqueTool, Target, WebSearchTool
from apps.gateway.dialects.chat import anthropic, responses
from apps.gateway.routing.candidate import Candidate
from apps.gateway.upstream.call_provider import target_of
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from apps.kernel.valkey import generation
from tests.catalog.small import offer
from tests.gateway.admission.test_worst_case_factors import CARD, asking
from tests.support.model_routes import post
from tests.support.upstream import Caller

SEARCHING = read_card({"input": "2", "output": "10", "web_search": "0.01", "tools": {"file_search": "0.0025"}})
FILE_SEARCH = OpaqueTool(dialect="responses", data={"type": "file_search", "vector_store_ids": ["v"]})
CODE = OpaqueTool(dialect="responses", data={"type": "code_interpreter", "container": {"type": "auto"}})


def candidate(card: PriceCard = SEARCHING, mode: str = CREDITS, **facts: Any) -> Candidate:
    one = offer("acme", "fox", prices=card, facts={"dialect": "anthropic", **facts}, context_length=None)
    return Candidate(one, Credential(mode), "fox")


def held(chat: Chat, one: Candidate) -> Decimal:
    return tariff_of(chat, one, 1_000, "none").cost_of(0) - Decimal("0.002")


@pytest.mark.parametrize(
    ("fields", "facts", "searches"),
    [
        ({}, {}, 0),
        ({"web_search": True}, {}, 10),
        ({"tools": [WebSearchTool()]}, {}, 10),
        ({"tools": [WebSearchTool(max_uses=3)]}, {}, 3),
        ({"tools": [WebSearchTool(max_uses=30)]}, {}, 30),
        ({"dialect": "responses", "tools": [WebSearchTool()], "extra": {"max_tool_calls": 4}}, {}, 4),
        ({"dialect": "responses", "tools": [WebSearchTool()], "extra": {"max_tool_calls": "4"}}, {}, 10),
        # Each of several calls searches.
        ({"tools": [WebSearchTool(max_uses=3)], "n": 2}, {}, 6),
        # A model that searches by itself.
        ({}, {"searches_unasked": 40}, 40),
        ({"tools": [WebSearchTool(max_uses=3)]}, {"searches_unasked": 1}, 3),
    ],
)
def test_searches_are_held_for_as_they_are_limited(
    fields: dict[str, Any], facts: dict[str, Any], searches: int
) -> None:
    assert held(asking(**fields), candidate(**facts)) == searches * Decimal("0.01")


def test_calls_of_a_tool_are_held_for_as_a_client_of_responses_limits_them() -> None:
    for extra, calls in (({}, 10), ({"max_tool_calls": 200}, 200), ({"max_tool_calls": 10**9}, 1_000)):
        chat = asking(dialect="responses", tools=[FILE_SEARCH], extra=extra)
        assert held(chat, candidate()) == calls * Decimal("0.0025")
    # Each of several calls may call the tool as often.
    chat = asking(dialect="responses", tools=[FILE_SEARCH], extra={"max_tool_calls": 3}, n=2)
    assert held(chat, candidate()) == 6 * Decimal("0.0025")


@given(
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
    st.booleans(),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_no_answer_within_the_limit_that_is_sent_costs_more_than_was_held(
    uses: int | None, calls: int | None, with_files: bool, searched: int, found: int
) -> None:
    """The provider is asked in OpenAI's format, whose limit is one for all calls together."""
    tools: list[Any] = [WebSearchTool(max_uses=uses), *([FILE_SEARCH] if with_files else [])]
    extra = None if calls is None else {"max_tool_calls": calls}
    dialect = "responses" if with_files or calls is not None else "openai"
    chat, one = asking(dialect=dialect, tools=tools, extra=extra), candidate()
    sent = json.loads(responses.write_request(chat, target_of(one)))["max_tool_calls"]
    searched = min(searched, sent)
    found = min(found, sent - searched) if with_files else 0
    usage = Usage(input=1_000, web_searches=searched, tool_calls={"file_search": found} if found else None)
    assert tariff_of(chat, one, 1_000, "none").cost_of(0) >= one.cost_of(usage).total


# --- the limit in the request to the provider


def told_to_anthropic(target: Target, **fields: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads(anthropic.write_request(asking(**fields), target))["tools"]
    return tools


def test_a_search_without_a_limit_gets_the_one_that_is_held_for() -> None:
    target = target_of(candidate())
    own = {"type": "web_search_20250305", "name": "web_search"}
    assert told_to_anthropic(target, web_search=True) == [{**own, "max_uses": 10}]
    assert told_to_anthropic(target, tools=[WebSearchTool(max_uses=25)]) == [{**own, "max_uses": 25}]
    assert target.dropped_fields == []
    # Searches that the organization pays itself, or that cost nothing, are not limited.
    for free in (candidate(mode=API_KEYS), candidate(PriceCard(input=Decimal(1)))):
        assert told_to_anthropic(target_of(free), web_search=True) == [own]


@pytest.mark.parametrize(
    ("tools", "extra", "limit"),
    [
        ([WebSearchTool()], {}, 10),
        ([WebSearchTool(), FILE_SEARCH, FunctionTool(name="f")], {}, 10),
        ([WebSearchTool(extra={"type": "web_search_preview"})], {}, 10),
        ([WebSearchTool()], {"max_tool_calls": 77}, 77),
        # Code may be run as often as it takes: one limit would be that of both.
        ([WebSearchTool(), CODE], {}, None),
        ([FunctionTool(name="f")], {}, None),
    ],
)
def test_calls_of_tools_without_a_limit_get_the_one_that_is_held_for(
    tools: list[Any], extra: dict[str, Any], limit: int | None
) -> None:
    chat = asking(dialect="responses", tools=tools, extra=extra)
    assert json.loads(responses.write_request(chat, target_of(candidate()))).get("max_tool_calls") == limit
    refused = replace(target_of(candidate()), facts={"unsupported": ["max_tool_calls"]})
    assert "max_tool_calls" not in json.loads(responses.write_request(chat, refused))


# --- the tier of service that the account is set to


@pytest.mark.parametrize(
    ("mode", "facts", "asked", "total"),
    [
        # Sent as `default`.
        (CREDITS, {"tier_by_account": True}, None, "0.003"),
        (CREDITS, {"tier_by_account": True}, "auto", "0.006"),
        # The organization's own account may be set to any.
        (API_KEYS, {"tier_by_account": True}, None, "0.006"),
        (API_KEYS, {"tier_by_account": True}, "default", "0.003"),
        (API_KEYS, {}, None, "0.003"),
    ],
)
def test_a_tier_that_the_account_decides_is_held_for(
    mode: str, facts: dict[str, Any], asked: str | None, total: str
) -> None:
    one = candidate(replace(CARD, regions={}), mode, **facts)
    assert tariff_of(asking(service_tier=asked), one, 1_000, "none").cost_of(100) == Decimal(total)


@pytest.mark.parametrize(
    ("facts", "asked", "sent"),
    [
        ({"tier_by_account": True}, {}, "default"),
        ({"tier_by_account": True}, {"service_tier": None}, "default"),
        ({"tier_by_account": True}, {"service_tier": "auto"}, "auto"),
        ({"tier_by_account": True}, {"service_tier": "flex"}, "flex"),
        ({}, {}, None),
    ],
)
def test_a_request_that_names_no_tier_is_served_at_the_usual_one(
    caller: Caller, facts: dict[str, Any], asked: dict[str, Any], sent: str | None
) -> None:
    tiers = {"flex": {"input": "0.5", "output": "1"}, "priority": {"input": "4", "output": "8"}}
    rows = ModelProvider.objects.filter(provider_id="sandbox", model_id="echo")
    rows.update(prices={"input": "1", "output": "2", "service_tiers": tiers}, facts=facts)
    generation.bump(generation.CATALOG)
    for route, tag in (("chat", uuid4().hex), ("messages", uuid4().hex)):
        if route == "messages" and asked:
            continue
        assert post(caller, route, f"hi [[sandbox tag={tag}]]", model="sandbox/echo", **asked).status == 200
        assert caller.sent(tag)[0]["body"].get("service_tier") == sent
