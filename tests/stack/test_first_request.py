"""A user's first steps: one request, whole or streamed, an answer, and a log entry with the exact cost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack

# USD per million tokens of sandbox/echo, as apps/catalog/providers/sandbox.toml states them.
INPUT, OUTPUT, CACHED = Decimal("0.15"), Decimal("0.6"), Decimal("0.075")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(product: Product) -> openai.OpenAI:
    """The official client, pointed at the gateway."""
    return openai.OpenAI(base_url=f"{product.url}/v1", api_key=product.demo["apiKey"], max_retries=0)


def cost_of(prompt: int, completion: int, cached: int = 0) -> Decimal:
    """Return the specification's formula, to the last digit."""
    return ((prompt - cached) * INPUT + completion * OUTPUT + cached * CACHED) / 1_000_000


def test_a_plain_completion_is_logged_with_its_exact_cost_and_paid_from_credits(
    product: Product, client: openai.OpenAI
) -> None:
    before = eventually(lambda: settled(product))
    raw = client.chat.completions.with_raw_response.create(
        model="sandbox/echo",
        messages=[{"role": "user", "content": "hello [[sandbox usage=1003,207,300]]"}],
        extra_headers={"x-source": "first-run", "x-gateway-team": "blue"},
    )
    reply = raw.parse()
    assert reply.choices[0].message.content == "You said: hello"
    assert reply.choices[0].finish_reason == "stop"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (1003, 207, 1210)
    expected = cost_of(1003, 207, 300)
    assert expected == Decimal("0.00025215")
    usage = reply.usage.model_dump()
    assert Decimal(str(usage["cost_usd_total"])) == expected
    assert Decimal(str(usage["cost_usd_input"])) == Decimal("0.00010545")
    assert Decimal(str(usage["cost_usd_output"])) == Decimal("0.0001242")
    assert Decimal(str(usage["cost_usd_cached_input"])) == Decimal("0.0000225")
    assert reply.metadata["used_provider"] == "sandbox"
    assert [one["succeeded"] for one in reply.gateway["routing"]] == [True]

    entry = product.log_of(raw.headers["x-request-id"])
    assert Decimal(str(entry["cost"])) == expected
    assert (entry["promptTokens"], entry["completionTokens"], entry["totalTokens"]) == ("1003", "207", "1210")
    assert (entry["usedModel"], entry["usedProvider"], entry["usedMode"]) == ("echo", "sandbox", "credits")
    assert entry["messages"] is None
    after = eventually(lambda: settled(product))
    assert before - after == expected


def settled(product: Product) -> Decimal | None:
    """Return the credits once nothing waits to be settled."""
    metrics = product.metrics()
    return Decimal(product.credits()) if metrics.get("gateway_outbox_depth") == 0 else None


def test_a_streamed_completion_costs_the_same(product: Product, client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="sandbox/echo",
        messages=[{"role": "user", "content": "hello there [[sandbox usage=1003,207,300 chunks=5]]"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(raw.parse())
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "You said: hello there"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 1210
    assert Decimal(str(chunks[-1].usage.model_dump()["cost_usd_total"])) == cost_of(1003, 207, 300)
    entry = product.log_of(raw.headers["x-request-id"])
    assert (entry["streamed"], Decimal(str(entry["cost"]))) == (True, cost_of(1003, 207, 300))


def test_tools_are_called_and_their_results_read(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "please call get_weather"}]
    reply = client.chat.completions.create(model="sandbox/tools", messages=messages, tools=[WEATHER])
    assert reply.choices[0].finish_reason == "tool_calls"
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city", "days"}
    messages += [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}]
    last = client.chat.completions.create(model="sandbox/tools", messages=messages, tools=[WEATHER])
    assert last.choices[0].finish_reason == "stop"
    assert "22 degrees" in last.choices[0].message.content


def test_streamed_tool_calls_accumulate(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="sandbox/tools",
        messages=[{"role": "user", "content": "please call get_weather"}],
        tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}],
    ) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert set(call.function.parsed_arguments) == {"city", "days"}


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


def test_a_json_schema_is_answered_in_its_shape(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model="sandbox/json", messages=[{"role": "user", "content": "who?"}], response_format=Person
    )
    assert isinstance(reply.choices[0].message.parsed, Person)


def test_the_health_page_says_that_all_is_well(product: Product) -> None:
    health = product.get("/")["health"]
    assert health == {"status": "ok", "redis": {"connected": True}, "database": {"connected": True}}
