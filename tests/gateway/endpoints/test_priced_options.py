"""Options that have prices of their own: refused where their price is not known, paid as they were served."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.upstream import Caller, nothing_happened, settle_all

PRICES = {
    "input": "1",
    "output": "2",
    "service_tiers": {"flex": {"input": "0.5", "output": "1"}, "priority": {"input": "4", "output": "8"}},
}
USED = "hi [[sandbox usage=1000,200]]"


@pytest.fixture
def priced(caller: Caller) -> Caller:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(prices=PRICES)
    generation.bump(generation.CATALOG)
    return caller


@pytest.mark.parametrize(
    ("tier", "cost"),
    [(None, "0.0014"), ("auto", "0.0014"), ("flex", "0.0007"), ("priority", "0.0056"), ("fast", "0.0056")],
)
def test_an_answer_that_names_no_tier_is_paid_as_it_was_asked_for(priced: Caller, tier: str | None, cost: str) -> None:
    fields = {} if tier is None else {"service_tier": tier}
    body = priced.chat(USED, model="sandbox/echo", **fields).json()
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, Decimal(str(body["usage"]["cost_usd_total"]))) == (Decimal(cost), Decimal(cost))
    assert "service_tiers" not in row.prices


@pytest.mark.parametrize("stream", [False, True])
def test_a_tier_without_a_price_is_refused_by_name(priced: Caller, stream: bool) -> None:
    answer = priced.chat(USED, model="sandbox/echo", service_tier="ultrafast", stream=stream)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("service_tier", "unsupported_feature")
    assert nothing_happened(priced)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"speed": "fast"}, "the service tier fast"), ({"inference_geo": "us"}, "answers from the region us")],
)
def test_speed_and_place_of_a_messages_client_are_refused_where_they_have_no_price(
    priced: Caller, fields: dict[str, Any], words: str
) -> None:
    body = {"model": "sandbox/echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    headers = {"x-api-key": priced.token, "anthropic-version": "2023-06-01"}
    answer = priced.client.post("/v1/messages", body, content_type="application/json", headers=headers)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (400, True)
    assert nothing_happened(priced)


def test_speed_of_a_messages_client_is_paid_where_it_has_a_price(caller: Caller) -> None:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(
        prices={"input": "1", "output": "2", "service_tiers": {"fast": {"input": "2", "output": "4"}}}
    )
    generation.bump(generation.CATALOG)
    body = {
        "model": "sandbox/echo",
        "max_tokens": 900,
        "speed": "fast",
        "messages": [{"role": "user", "content": USED}],
    }
    headers = {"x-api-key": caller.token, "anthropic-version": "2023-06-01"}
    assert caller.client.post("/v1/messages", body, content_type="application/json", headers=headers).status_code == 200
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.0028")


@pytest.mark.parametrize("prices", [{}, {"tools": {"file_search": "0.0025"}}])
def test_a_tool_of_the_providers_without_a_price_is_refused_by_name(caller: Caller, prices: dict[str, Any]) -> None:
    ModelProvider.objects.filter(provider_id="sandbox", model_id="tools").update(
        prices={"input": "1", "output": "2", **prices}
    )
    generation.bump(generation.CATALOG)
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "image_generation"}]
    body = {"model": "sandbox/tools", "input": "hi", "tools": tools}
    headers = {"Authorization": f"Bearer {caller.token}"}
    answer = caller.client.post("/v1/responses", body, content_type="application/json", headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "tools[1]")
    assert "does not support the tool image_generation" in error["message"]
    assert nothing_happened(caller)
