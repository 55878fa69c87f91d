"""A client that drops thinking, in front of a model that insists on it: loops through a tool, over real HTTP."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai.chat_models.base import _convert_message_to_dict

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.kernel.valkey import redis as kernel_redis
from tests.support.anthropic_requests import speak
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, chunks_of

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
SIGNATURE = "c2FuZGJveCBzaWduYXR1cmU="


@pytest.fixture
def claude(caller: Caller) -> Caller:
    """The caller, in front of an upstream of Anthropic's format that insists on thinking as Anthropic does."""
    speak("anthropic")
    ModelProvider.objects.filter(provider_id="sandbox", model_id="tools").update(
        reasoning=True, facts={"reasoning_budget": {"min": 1024}}
    )
    return caller


def ask(claude: Caller, messages: list[Any], tag: str = "", **fields: Any) -> Any:
    """Ask for an answer after some thinking."""
    asked = {"max_tokens": 4_000, "reasoning_effort": "medium", "tools": [WEATHER], **fields}
    headers = {"x-sandbox-tag": tag}
    return claude.chat(model="sandbox/tools", messages=messages, headers=headers, **asked)


def sent_messages(claude: Caller, tag: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the body of the one request that the upstream got under a tag, and its messages."""
    (sent,) = claude.sent(tag)
    return sent["body"], sent["body"]["messages"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_drops_thinking_loops_through_a_tool_all_the_same(claude: Caller, stream: bool) -> None:
    """LangChain's OpenAI client keeps only the text and the calls of an answer."""
    question = f"call weather ({uuid4().hex})"
    first = ask(claude, [{"role": "user", "content": question}], stream=stream)
    call, thought, signature = streamed_parts(first) if stream else whole_parts(first)
    assert (bool(thought), signature) == (True, SIGNATURE)
    tag = uuid4().hex
    kept = as_langchain_sends_it(call, f"{question} [[sandbox tag={tag}]]")
    again = ask(claude, kept)
    assert again.status_code == 200, again.content
    assert again.json()["choices"][0]["message"]["content"] == "weather answered: Sun"
    assert "warnings" not in again.json()["metadata"]
    body, messages = sent_messages(claude, tag)
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": thought, "signature": signature},
        {"type": "tool_use", "id": call["id"], "name": "weather", "input": {}},
    ]
    assert body["thinking"]["type"] == "enabled"


def whole_parts(response: Any) -> tuple[dict[str, Any], str, str]:
    """Return a whole answer's call, its thinking and the seal on that."""
    message = response.json()["choices"][0]["message"]
    [detail] = message["reasoning_details"]
    return message["tool_calls"][0], detail["text"], detail["signature"]


def streamed_parts(response: Any) -> tuple[dict[str, Any], str, str]:
    """Return a streamed answer's call, its thinking and the seal on that."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(response)[:-1] if chunk["choices"]]
    details = [detail for delta in deltas for detail in delta.get("reasoning_details", [])]
    [call] = [call for delta in deltas for call in delta.get("tool_calls", []) if "id" in call]
    arguments = "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", []))
    text = "".join(detail.get("text", "") for detail in details)
    signature = next(detail["signature"] for detail in details if "signature" in detail)
    return {**call, "function": {**call["function"], "arguments": arguments}}, text, signature


def as_langchain_sends_it(call: dict[str, Any], question: str) -> list[Any]:
    """Return the conversation as LangChain's own client writes it for the next request."""
    made = {"id": call["id"], "name": "weather", "args": json.loads(call["function"]["arguments"]), "type": "tool_call"}
    messages = [
        HumanMessage(question),
        AIMessage("", tool_calls=[made]),
        ToolMessage("Sun", tool_call_id=call["id"]),
    ]
    return [_convert_message_to_dict(message) for message in messages]


def test_thinking_that_is_gone_switches_thinking_off_and_says_so(claude: Caller) -> None:
    tag = uuid4().hex
    lost = as_langchain_sends_it(
        {"id": f"toolu_{tag}", "function": {"arguments": "{}"}}, f"hello [[sandbox tag={tag}]]"
    )
    response = ask(claude, lost)
    assert response.status_code == 200, response.content
    assert [warning["param"] for warning in response.json()["metadata"]["warnings"]] == ["reasoning"]
    assert "reasoning" in response["x-gateway-loss"]
    body, _ = sent_messages(claude, tag)
    assert "thinking" not in body


def test_with_x_strict_thinking_that_is_gone_is_a_refusal(claude: Caller) -> None:
    lost = as_langchain_sends_it({"id": f"toolu_{uuid4().hex}", "function": {"arguments": "{}"}}, "hello")
    response = claude.chat(
        model="sandbox/tools",
        messages=lost,
        tools=[WEATHER],
        max_tokens=4_000,
        reasoning_effort="medium",
        headers={"X-Strict": "true", "X-No-Fallback": "true"},
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "reasoning")


def test_the_thinking_of_an_answered_turn_is_not_needed(claude: Caller) -> None:
    tag = uuid4().hex
    call = {"id": f"toolu_{tag}", "function": {"arguments": "{}"}}
    messages = [
        *as_langchain_sends_it(call, "hello"),
        {"role": "assistant", "content": "It shines."},
        {"role": "user", "content": f"and now? [[sandbox tag={tag}]]"},
    ]
    response = ask(claude, messages)
    assert response.status_code == 200, response.content
    assert "warnings" not in response.json()["metadata"]
    body, _ = sent_messages(claude, tag)
    assert body["thinking"]["type"] == "enabled"


def test_only_a_request_that_lacks_thinking_makes_a_round_trip_for_it(
    claude: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"role": "user", "content": f"call weather ({uuid4().hex})"}
    call = ask(claude, [question]).json()["choices"][0]["message"]["tool_calls"][0]
    kept = as_langchain_sends_it(call, question["content"])
    trips = round_trips(monkeypatch, kernel_redis.cache_client())
    with CaptureQueriesContext(connection) as queries:
        assert ask(claude, [{"role": "user", "content": "hi"}], tools=None).status_code == 200
        assert ask(claude, kept, reasoning_effort=None).status_code == 200
    assert len(queries) == 0
    assert not {"MGET", "SET"} & set(trips)
    usual = len(trips) / 2
    trips.clear()
    assert ask(claude, kept).status_code == 200
    assert (trips.count("MGET"), len(trips)) == (1, usual + 1)


def test_a_fallback_takes_seals_to_their_maker_and_to_nobody_else(
    claude: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maker is asked first and fails; another maker's format gets the calls without the thinking."""
    question = {"role": "user", "content": f"call weather ({uuid4().hex})"}
    call = ask(claude, [question]).json()["choices"][0]["message"]["tool_calls"][0]
    add_provider(claude, monkeypatch, "gemini", "google", auth="x-goog-api-key", path="/v1beta")
    offer_models("gemini", lambda mapping: setattr(mapping, "facts", {}), model_id="tools")
    generation.bump(generation.CATALOG)
    tag = uuid4().hex
    # The first to be asked fails, the second answers.
    kept = as_langchain_sends_it(call, f"hello [[sandbox tag={tag} status=503 times=1]]")
    response = ask(claude, kept)
    assert response.status_code == 200, response.content
    to_claude, to_gemini = claude.sent(tag)
    assert to_claude["path"] == "/v1/messages"
    assert to_claude["body"]["messages"][1]["content"][0]["type"] == "thinking"
    assert to_gemini["path"].startswith("/v1beta/models/")
    [part] = to_gemini["body"]["contents"][1]["parts"]
    assert part["functionCall"]["name"] == "weather"
    assert SIGNATURE not in json.dumps(to_gemini["body"])
