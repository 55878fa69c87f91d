"""OpenAI's and Anthropic's formats in front, Responses behind: the gateway over real HTTP, against the sandbox as a
strict OpenAI."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.logs.models import RequestLog
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of, settle_all

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
ANTHROPICS_WEATHER = {"name": "weather", "input_schema": PARAMETERS}


@pytest.fixture
def oracle(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider `oracle` that speaks Responses and knows the sandbox's models."""
    add_provider(caller, monkeypatch, "oracle", "responses", facts={"developer_role": True})
    offer_models("oracle", lambda mapping: setattr(mapping, "reasoning", True))
    return caller


def ask(oracle: Caller, content: Any = "hello", **fields: Any) -> Any:
    """Ask in OpenAI's format; the provider's `echo`, unless another model is asked."""
    return oracle.chat(content, **{"model": "oracle/echo", **fields})


def thoughts_in(sent: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ids and the seals of the thinking that the provider was sent."""
    items = [item for item in sent["body"]["input"] if item.get("type") == "reasoning"]
    return [(item["id"], item["encrypted_content"]) for item in items]


def test_a_plain_answer_comes_back_in_openais_format_and_is_billed(oracle: Caller) -> None:
    tag = uuid4().hex
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": f"hi [[sandbox usage=1000,200,100,50 tag={tag}]]"},
    ]
    response = ask(oracle, messages=messages, max_tokens=500, reasoning_effort="low")
    assert response.status_code == 200, response.content
    body = response.json()
    # The specification's `metadata` is richer than the field of that name in OpenAI's types.
    ChatCompletion.model_validate({**body, "metadata": None})
    message = body["choices"][0]["message"]
    assert message["content"] == "You said: hi"
    assert message["reasoning"].startswith("thought-1 thought-2")
    assert [detail["type"] for detail in message["reasoning_details"]] == ["reasoning.summary", "reasoning.encrypted"]
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (1000, 200, 1200)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 100
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 50
    assert body["metadata"]["used_provider"] == "oracle"
    (sent,) = oracle.sent(tag)
    assert sent["path"] == "/v1/responses"
    assert sent["body"] == {
        "model": "echo",
        "input": messages,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 500,
        "reasoning": {"effort": "low", "summary": "auto"},
    }
    settle_all()
    log = RequestLog.objects.get()
    assert log.cost == Decimal(str(usage["cost_usd_total"]))
    assert log.cost > 0


def test_a_stream_comes_back_in_openais_chunks(oracle: Caller) -> None:
    *chunks, end = chunks_of(ask(oracle, "one two [[sandbox chunks=3 usage=10,5 reasoning=2]]", stream=True))
    assert end == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate({**chunk, "metadata": None})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "You said: one two"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "thought-1 thought-2"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_back_in_anthropics_format(oracle: Caller, stream: bool) -> None:
    response = ask_messages(oracle, "one two [[sandbox usage=10,5,4 reasoning=2]]", model="oracle/echo", stream=stream)
    message = streamed_message(response) if stream else response.json()
    Message.model_validate(message)
    thinking, redacted, text = message["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "thought-1 thought-2")
    assert redacted["type"] == "redacted_thinking"
    assert text == {"type": "text", "text": "You said: one two"}
    assert message["stop_reason"] == "end_turn"
    assert (message["usage"]["input_tokens"], message["usage"]["cache_read_input_tokens"]) == (6, 4)
    assert message["usage"]["output_tokens"] == 5


def streamed_message(response: Any) -> dict[str, Any]:
    """Return the message that a stream adds up to, its order being sound."""
    events = chunks_of(response)
    assert_in_order(events)
    return message_of(events)


@pytest.mark.parametrize("keeps_only_ids", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_thinking_survives_an_openai_clients_tools(oracle: Caller, stream: bool, keeps_only_ids: bool) -> None:
    tag, again = uuid4().hex, uuid4().hex
    question = {"role": "user", "content": f"call weather [[sandbox tag={tag}]]"}
    fields: dict[str, Any] = {"model": "oracle/tools", "tools": [WEATHER], "reasoning_effort": "low"}
    response = ask(oracle, messages=[question], stream=stream, **fields)
    answer = streamed_answer(response) if stream else response.json()["choices"][0]["message"]
    [call] = answer["tool_calls"]
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    [seal] = [detail for detail in answer["reasoning_details"] if detail["type"] == "reasoning.encrypted"]
    if keeps_only_ids:
        answer = {"role": "assistant", "content": None, "tool_calls": answer["tool_calls"]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
    question["content"] = f"call weather [[sandbox tag={again}]]"
    response = ask(oracle, messages=[question, answer, result], **fields)
    assert response.status_code == 200, response.content
    assert response.json()["choices"][0]["message"]["content"] == "weather answered: Sun"
    (sent,) = oracle.sent(again)
    assert thoughts_in(sent) == [(seal["id"], seal["data"])]
    assert [item.get("type", item.get("role")) for item in sent["body"]["input"]] == [
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
    ]


def streamed_answer(response: Any) -> dict[str, Any]:
    """Return the message of a stream, put together as clients do."""
    calls: dict[int, dict[str, Any]] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(response)[:-1]:
        delta = chunk["choices"][0]["delta"]
        for piece in delta.get("tool_calls", []):
            call = calls.setdefault(piece["index"], {**piece, "function": {"name": "", "arguments": ""}})
            for name, text in piece["function"].items():
                call["function"][name] += text
        for piece in delta.get("reasoning_details", []):
            block = blocks.setdefault(piece["index"], {**piece, "summary": ""} if "summary" in piece else piece)
            if "summary" in piece:
                block["summary"] += piece["summary"]
    return {
        "role": "assistant",
        "content": None,
        "reasoning_details": list(blocks.values()),
        "tool_calls": [{name: it for name, it in call.items() if name != "index"} for call in calls.values()],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_survives_an_anthropic_clients_tools(oracle: Caller, stream: bool) -> None:
    tag = uuid4().hex
    fields: dict[str, Any] = {
        "model": "oracle/tools",
        "tools": [ANTHROPICS_WEATHER],
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
    }
    question = {"role": "user", "content": "call weather"}
    response = ask_messages(oracle, messages=[question], stream=stream, **fields)
    content = (streamed_message(response) if stream else response.json())["content"]
    assert [block["type"] for block in content] == ["thinking", "redacted_thinking", "tool_use"]
    result = {"type": "tool_result", "tool_use_id": content[2]["id"], "content": "Sun"}
    question["content"] = f"call weather [[sandbox tag={tag}]]"
    turns = [question, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    response = ask_messages(oracle, messages=turns, **fields)
    assert response.status_code == 200, response.content
    assert response.json()["content"][-1] == {"type": "text", "text": "weather answered: Sun"}
    (sent,) = oracle.sent(tag)
    assert thoughts_in(sent) == [(content[1]["id"], content[1]["data"])]
    assert sent["body"]["input"][1]["summary"] == [{"type": "summary_text", "text": content[0]["thinking"]}]


def test_a_call_of_another_models_making_is_taken_under_a_shorter_id(oracle: Caller) -> None:
    tag = uuid4().hex
    long = "call_" + "x" * 100
    messages = [
        {"role": "user", "content": f"Weather? [[sandbox tag={tag}]]"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": long, "type": "function", "function": {"name": "weather", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": long, "content": "Sun"},
    ]
    response = ask(oracle, model="oracle/tools", messages=messages, tools=[WEATHER])
    assert response.json()["choices"][0]["message"]["content"] == "weather answered: Sun"
    (sent,) = oracle.sent(tag)
    _, call, result = sent["body"]["input"]
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) <= 64
    assert call["arguments"] == "{}"


def test_a_schema_of_the_answer_is_asked_for(oracle: Caller) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PARAMETERS}}
    response = ask(oracle, model="oracle/json", response_format=form)
    assert json.loads(response.json()["choices"][0]["message"]["content"]).keys() == {"city"}


def test_what_is_left_out_is_told(oracle: Caller) -> None:
    response = ask(oracle, seed=7, top_k=40, max_tokens=3)
    assert response.status_code == 200
    told = {loss["param"] for loss in response.json()["metadata"]["warnings"]}
    assert told == {"seed", "top_k", "max_tokens"}
    refused = ask(oracle, seed=7, headers={"X-Strict": "true", "X-No-Fallback": "true"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "seed")


def test_a_refusal_reaches_the_client_in_the_providers_words(oracle: Caller) -> None:
    response = ask(oracle, "hi [[sandbox status=400 code=content_filter]]")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "content_filter")


def test_what_has_no_words_is_refused_before_anybody_is_asked(oracle: Caller) -> None:
    tag = uuid4().hex
    asked = {"image_config": {"aspect_ratio": "1:1"}, "headers": {"X-No-Fallback": "true"}}
    response = ask(oracle, f"hi [[sandbox tag={tag}]]", **asked)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_feature")
    assert response.json()["error"]["param"] == "image_config"
    assert oracle.sent(tag) == []


def test_what_has_no_words_is_answered_by_another_provider(oracle: Caller) -> None:
    response = ask(oracle, "hi", model="echo", image_config={"aspect_ratio": "1:1"})
    assert (response.status_code, response.json()["metadata"]["used_provider"]) == (200, "sandbox")


@pytest.mark.parametrize("failure", ["status=503", "status=429", "error=body"])
@pytest.mark.parametrize("stream", [False, True])
def test_another_provider_answers_when_this_one_fails_first(oracle: Caller, stream: bool, failure: str) -> None:
    response = ask(oracle, f"hi [[sandbox {failure} times=1 tag={uuid4().hex}]]", stream=stream)
    assert response.status_code == 200
    metadata = chunks_of(response)[-2]["metadata"] if stream else response.json()["metadata"]
    assert metadata["used_provider"] == "sandbox"
    assert [(line["provider"], line["succeeded"]) for line in metadata["routing"]] == [
        ("oracle", False),
        ("sandbox", True),
    ]


def openais_end(oracle: Caller, content: str) -> str:
    *_, last = chunks_of(ask(oracle, content, stream=True))
    return str(last["error"]["message"])


def anthropics_end(oracle: Caller, content: str) -> str:
    *_, last = chunks_of(ask_messages(oracle, content, model="oracle/echo", stream=True))
    assert last["type"] == "error"
    return str(last["error"]["message"])


@pytest.mark.parametrize("end_of", [openais_end, anthropics_end])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cut=5", "oracle failed"),
        ("end=5", "The provider's answer ended before it was complete"),
        ("error=5", "The server had an error"),
        ("broken=5", "The provider sent invalid JSON"),
    ],
)
def test_a_stream_that_breaks_ends_with_an_error(
    oracle: Caller, fault: str, words: str, end_of: Callable[[Caller, str], str]
) -> None:
    assert words in end_of(oracle, f"one two three [[sandbox {fault}]]")
