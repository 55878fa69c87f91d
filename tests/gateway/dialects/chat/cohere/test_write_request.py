"""Requests to Cohere: a field that it has no words for is reported as a loss, or refused by its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import (
    CacheMark,
    Chat,
    File,
    Image,
    Message,
    OpaqueTool,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.chat import cohere, openai
from apps.kernel.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def target(**facts: Any) -> Target:
    """Return a model with these facts, whose answers have at most 8,000 tokens."""
    return Target(model_name="upstream-model", facts=facts, max_output=8_000)


def read(**fields: Any) -> Chat:
    """Read a request with these fields beside a model and a message."""
    return openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())


def lost(goal: Target, **fields: Any) -> list[str]:
    """Return which fields are lost on the way to a target."""
    cohere.write_request(read(**fields), goal)
    return [dropped.param for dropped in goal.dropped_fields]


@pytest.mark.parametrize(
    "fields",
    [
        {"top_p": 1},
        {"top_p": 0},
        {"top_k": 501},
        {"frequency_penalty": -0.1},
        {"presence_penalty": 1.5},
        {"logit_bias": {"1": 1}},
        {"verbosity": "low"},
        {"prompt_cache_key": "k"},
        {"prediction": {"type": "content", "content": "x"}},
        {"own": 1},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_wish_without_words_is_lost_and_told(fields: dict[str, Any]) -> None:
    assert lost(target(), **fields) == list(fields)
    wire = json.loads(cohere.write_request(read(**fields), target()))
    assert wire == {"model": "upstream-model", "messages": MESSAGES}


def test_what_is_within_the_bounds_is_lost_nowhere() -> None:
    fields = {"top_p": 0.99, "top_k": 500, "frequency_penalty": 0, "presence_penalty": 1, "n": 1, "seed": 7}
    assert lost(target(), **fields) == []
    assert lost(target(unsupported=["seed"]), **fields) == ["seed"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"image_config": {"n": 1}}, "image_config"),
        ({"web_search": True}, "web_search"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        (
            {"messages": [*MESSAGES, {"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]},
            "messages[1].content[0]",
        ),
        (
            {
                "messages": [
                    {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a"}}]}
                ]
            },
            "messages[0].content[0]",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        cohere.write_request(read(**fields), target())
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", param)


def test_tools_of_other_formats_are_refused() -> None:
    chat = Chat(model="m", messages=[], tools=[OpaqueTool(dialect="another", data={})])
    with pytest.raises(InvalidRequest) as refusal:
        cohere.write_request(chat, target())
    assert refusal.value.param == "tools[0]"


@pytest.mark.parametrize(
    ("effort", "facts", "thinking"),
    [
        ("low", {"reasoning_budget": {}}, {"type": "enabled", "token_budget": 1_600}),
        ("high", {"reasoning_budget": {"max": 2_000}}, {"type": "enabled", "token_budget": 2_000}),
        ("minimal", {"reasoning_budget": {"min": 1_024}}, {"type": "enabled", "token_budget": 1_024}),
        ("max", {"reasoning_budget": {"max": 2_000}}, {"type": "enabled"}),
        ("none", {"reasoning_budget": {}}, {"type": "disabled"}),
        ("none", {}, None),
    ],
)
def test_an_effort_is_a_share_of_the_answer(effort: str, facts: dict[str, Any], thinking: Any) -> None:
    goal = target(**facts)
    assert json.loads(cohere.write_request(read(reasoning_effort=effort), goal)).get("thinking") == thinking
    assert goal.dropped_fields == []


def test_a_model_that_does_not_think_is_not_told_to_and_reads_no_thinking() -> None:
    assert lost(target(), reasoning_effort="high") == ["reasoning_effort"]
    answer = {"role": "assistant", "content": "4", "reasoning": "Easy."}
    wire = json.loads(cohere.write_request(read(messages=[*MESSAGES, answer]), target()))
    assert wire["messages"][1] == {"role": "assistant", "content": "4"}


def test_json_is_asked_for_in_words_only_where_nobody_speaks_of_it() -> None:
    form = {"type": "json_object"}
    silent = json.loads(cohere.write_request(read(response_format=form), target()))
    assert [message["role"] for message in silent["messages"]] == ["system", "user"]
    said = [{"role": "user", "content": "Give me Json."}]
    spoken = json.loads(cohere.write_request(read(response_format=form, messages=said), target()))
    assert (spoken["messages"], spoken["response_format"]) == (said, form)


def test_what_a_tool_shows_follows_and_what_went_wrong_is_said() -> None:
    picture = Image(url="https://x.test/a.png")
    chat = Chat(
        model="m",
        messages=[
            Message(role="assistant", parts=[ToolCall(id=name, name="f", arguments="{}") for name in "ab"]),
            Message(role="tool", parts=[ToolResult(call_id="a", parts=[Text(text="no"), picture], is_error=True)]),
            Message(role="tool", parts=[ToolResult(call_id="b", parts=[])]),
        ],
    )
    shown = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    assert json.loads(cohere.write_request(chat, target()))["messages"][1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "Error: no"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": [shown]},
    ]
    chat.messages[1].parts = [ToolResult(call_id="b", parts=[File(data="AA==")])]
    with pytest.raises(InvalidRequest):
        cohere.write_request(chat, target())


@pytest.mark.parametrize(
    ("status", "body", "message", "code"),
    [
        (401, b'{"message":"invalid api token"}', "invalid api token", None),
        (429, b'{"id":"x","message":"Please wait and try again later"}', "Please wait and try again later", None),
        (
            400,
            b'{"message":"too many tokens: total number of tokens in the prompt cannot exceed 128000"}',
            "too many tokens: total number of tokens in the prompt cannot exceed 128000",
            "context_length_exceeded",
        ),
        (502, b"<html>", "The provider answered with status 502", None),
        (500, b'{"error":{"message":"proxy","code":"bad"}}', "proxy", "bad"),
    ],
)
def test_failures_are_told_in_coheres_words(status: int, body: bytes, message: str, code: str | None) -> None:
    failure = cohere.read_failure(status, body)
    assert (failure.message, failure.code) == (message, code)


def test_a_result_without_its_call_is_told_and_said_by_the_user() -> None:
    chat = Chat(model="m", messages=[Message(role="tool", parts=[ToolResult(call_id="a", parts=[Text(text="no")])])])
    asked = target()
    [message] = json.loads(cohere.write_request(chat, asked))["messages"]
    assert (message["role"], [part["text"] for part in message["content"]][1:]) == ("user", ["no"])
    assert [dropped.param for dropped in asked.dropped_fields] == ["messages[0].tool_call_id"]


def test_what_only_another_format_says_is_told() -> None:
    part = Text(text="Hi", cache=CacheMark(), extra={"partMetadata": {"k": 1}})
    chat = Chat(model="m", messages=[Message(role="user", parts=[part], name="Ada")], dialect="openai")
    asked = target()
    assert json.loads(cohere.write_request(chat, asked))["messages"] == [{"role": "user", "content": "Hi"}]
    assert [dropped.param for dropped in asked.dropped_fields] == [
        "messages[0].name",
        "messages[0].content[0].cache_control",
        "messages[0].content[0].partMetadata",
    ]
