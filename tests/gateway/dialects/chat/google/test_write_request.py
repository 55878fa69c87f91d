"""Requests to Google, and refusals of fields that Google has no words for. Every request that is sent satisfies the
types of Google's own client."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from google.genai import types
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from apps.gateway.canonical.chat import Audio, Chat, File, Image, Message, Opaque, Target, Text, ToolCall, ToolResult
from apps.gateway.dialects.adapting.thinking import join_signature, split_signature
from apps.gateway.dialects.chat import google, openai
from apps.gateway.dialects.chat.google.provider.write_contents import PLACEHOLDER_SIGNATURE, read_name, write_name
from apps.kernel.errors import InvalidRequest
from tests.support.canonical_chats import chats

MESSAGES = [{"role": "user", "content": "Hi"}]
WEATHER = {"type": "function", "function": {"name": "weather"}}
LEVELS: dict[str, Any] = {"reasoning_efforts": ["low", "high"]}
BUDGET: dict[str, Any] = {"reasoning_budget": {"min": 512, "max": 24_576}}


def read(**fields: Any) -> Chat:
    """Read a request with these fields beside a model and a message."""
    return openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())


def sent(chat: Chat, **facts: Any) -> dict[str, Any]:
    """Return what a provider with these facts is sent."""
    wire: dict[str, Any] = json.loads(google.write_request(chat, Target(model_name="gemini-fox", facts=facts)))
    assert_googles_client_takes(wire)
    return wire


def assert_googles_client_takes(wire: dict[str, Any]) -> None:
    """Every field has the name and the type that Google's own client knows; an unknown one is refused by its types."""
    assert wire.keys() <= {"systemInstruction", "contents", "tools", "toolConfig", "generationConfig", "serviceTier"}
    for content in [*wire["contents"], wire.get("systemInstruction", {"parts": []})]:
        types.Content.model_validate(content)
    for tool in wire.get("tools", []):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(wire.get("toolConfig", {}))
    config = dict(wire.get("generationConfig", {}))
    # The client's types have this one field in its request and not in its configuration.
    types.ImageConfig.model_validate(config.pop("imageConfig", {}))
    types.GenerationConfig.model_validate(config)
    types.ServiceTier(wire.get("serviceTier", "standard"))


def config_of(chat: Chat, **facts: Any) -> dict[str, Any]:
    """Return the configuration that a provider with these facts is sent."""
    found: dict[str, Any] = sent(chat, **facts).get("generationConfig", {})
    return found


@pytest.mark.parametrize(
    ("stream", "path"),
    [
        (False, "/models/gemini-2.5-flash:generateContent"),
        (True, "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
    ],
)
def test_the_path_names_the_model_and_whether_it_streams(stream: bool, path: str) -> None:
    assert google.path(read(stream=stream), Target(model_name="gemini-2.5-flash", facts={})) == path


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "audio"),
        ({"tools": [WEATHER], "web_search": True}, "tools"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}]}, "tools[0]"),
        ({"image_config": {"image_quality": "high"}}, "image_config"),
        ({"image_config": {"n": 2}}, "image_config"),
        ({"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_video"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "AAAA"}}]}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,hi"}}]}]},
            "messages",
        ),
    ],
)
def test_what_cannot_be_expressed_is_refused_before_it_is_sent(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        sent(read(**fields), **LEVELS)
    assert (refusal.value.status, refusal.value.code, refusal.value.param) == (400, "unsupported_feature", param)


@pytest.mark.parametrize(
    ("fields", "losses", "config"),
    [
        ({"logit_bias": {"1": 5}}, ["logit_bias"], {}),
        ({"verbosity": "low", "user": "u-1", "metadata": {"a": "b"}}, ["verbosity", "user", "metadata"], {}),
        ({"tools": [WEATHER], "parallel_tool_calls": False}, ["parallel_tool_calls"], {}),
        ({"tools": [{"type": "web_search", "max_uses": 2}]}, ["tools[0].max_uses"], {}),
        ({"tools": [{"type": "web_search", "user_location": {"city": "Rome"}}]}, ["tools[0].user_location"], {}),
        ({"seed": 2**31}, ["seed"], {}),
        ({"service_tier": "scale"}, ["service_tier"], {}),
        (
            {"reasoning_effort": "none"},
            ["reasoning_effort"],
            {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}},
        ),
        (
            {"reasoning_effort": "max"},
            ["reasoning_effort"],
            {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}},
        ),
        (
            {"x_new": 1, "messages": [{"role": "user", "content": "Hi", "name": "Bo"}]},
            ["x_new", "messages[0].name"],
            {},
        ),
        (
            {"frequency_penalty": 0.5, "n": 1, "parallel_tool_calls": True},
            [],
            {"frequencyPenalty": 0.5, "candidateCount": 1},
        ),
    ],
)
def test_hints_that_cannot_be_expressed_are_left_out_with_a_note(
    fields: dict[str, Any], losses: list[str], config: dict[str, Any]
) -> None:
    target = Target(model_name="gemini-fox", facts=LEVELS)
    wire = json.loads(google.write_request(read(**fields), target))
    assert_googles_client_takes(wire)
    assert [loss.param for loss in target.dropped_fields] == losses
    assert wire.get("generationConfig", {}) == config


def test_names_too_long_to_escape_are_sent_as_others_and_come_back() -> None:
    name = "é" * 43
    target = Target(model_name="gemini-fox", facts={})
    wire = json.loads(google.write_request(read(tools=[{"type": "function", "function": {"name": name}}]), target))
    (sent_name,) = target.rewrites.tool_names
    assert target.rewrites.tool_names == {sent_name: name}
    assert wire["tools"][0]["functionDeclarations"][0]["name"] == sent_name


def test_six_stop_sequences_are_refused_to_googles_own_clients() -> None:
    chat = read()
    chat.stop = ["1", "2", "3", "4", "5", "6"]
    assert config_of(chat) == {"stopSequences": ["1", "2", "3", "4", "5"]}
    chat.dialect = "google"
    with pytest.raises(InvalidRequest, match="at most 5 stop sequences"):
        sent(chat)


def test_a_result_that_nobody_asked_for_is_said_in_the_users_words() -> None:
    chat = Chat(model="m", messages=[Message(role="tool", parts=[ToolResult(call_id="c9", parts=[Text(text="Sun")])])])
    words = "Result of a tool call that is not part of this conversation (c9):"
    assert sent(chat)["contents"] == [{"role": "user", "parts": [{"text": words}, {"text": "Sun"}]}]


@pytest.mark.parametrize(
    ("asked", "facts", "config"),
    [
        ({"effort": "low"}, LEVELS, {"thinkingLevel": "LOW", "includeThoughts": True}),
        ({"effort": "xhigh"}, {}, {"thinkingLevel": "XHIGH", "includeThoughts": True}),
        ({"effort": "high", "exclude": True}, LEVELS, {"thinkingLevel": "HIGH"}),
        ({"effort": "none"}, BUDGET, {"thinkingBudget": 0}),
        ({"effort": "minimal"}, BUDGET, {"thinkingBudget": 512, "includeThoughts": True}),
        ({"effort": "low"}, BUDGET, {"thinkingBudget": 2048, "includeThoughts": True}),
        ({"effort": "medium"}, BUDGET, {"thinkingBudget": 8192, "includeThoughts": True}),
        ({"effort": "max"}, BUDGET, {"thinkingBudget": 24576, "includeThoughts": True}),
        ({"effort": "low", "max_tokens": 99_999}, BUDGET, {"thinkingBudget": 24576, "includeThoughts": True}),
        ({"max_tokens": 1}, LEVELS, {"thinkingBudget": 1, "includeThoughts": True}),
        ({}, LEVELS, {"includeThoughts": True}),
    ],
)
def test_effort_is_a_level_or_a_budget_by_the_facts(
    asked: dict[str, Any], facts: dict[str, Any], config: dict[str, Any]
) -> None:
    assert config_of(read(reasoning=asked), **facts) == {"thinkingConfig": config}


def test_nobody_who_did_not_ask_for_thinking_asks_for_it() -> None:
    assert "generationConfig" not in sent(read(), **BUDGET)


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (None, None),
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (WEATHER, {"mode": "ANY", "allowedFunctionNames": ["weather"]}),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
            {"mode": "ANY", "allowedFunctionNames": ["weather"]},
        ),
    ],
)
def test_the_choice_among_tools_is_said_as_googles_mode(choice: Any, config: dict[str, Any] | None) -> None:
    wire = sent(read(tools=[WEATHER], tool_choice=choice))
    assert wire.get("toolConfig") == (None if config is None else {"functionCallingConfig": config})


def test_arguments_of_a_strict_function_are_validated() -> None:
    strict = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": {"type": "object"}}}
    assert sent(read(tools=[strict]))["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}


def test_a_call_without_its_seal_gets_the_documented_one_where_seals_are_insisted_on() -> None:
    call = Message(role="assistant", parts=[ToolCall(id="c1", name="weather", arguments="{}")])
    result = Message(role="tool", parts=[ToolResult(call_id="c1", parts=[Text(text="Sun")])])
    chat = Chat(model="m", messages=[Message(role="user", parts=[Text(text="?")]), call, result])
    part = {"functionCall": {"id": "c1", "name": "weather", "args": {}}}
    assert sent(chat, **LEVELS)["contents"][1]["parts"] == [{**part, "thoughtSignature": PLACEHOLDER_SIGNATURE}]
    assert sent(chat, **BUDGET)["contents"][1]["parts"] == [part]


def test_results_stand_in_the_order_of_their_calls_also_when_ids_come_again() -> None:
    calls = Message(
        role="assistant",
        parts=[ToolCall(id="0", name="sun", arguments="{}"), ToolCall(id="1", name="rain", arguments="{}")],
    )
    results = [Message(role="tool", parts=[ToolResult(call_id=name, parts=[Text(text=name)])]) for name in ("1", "0")]
    contents = sent(Chat(model="m", messages=[calls, *results, calls, *results]))["contents"]
    for content in (contents[1], contents[3]):
        assert [part["functionResponse"]["name"] for part in content["parts"]] == ["sun", "rain"]


def test_a_failed_tools_answer_is_an_error() -> None:
    call = Message(role="assistant", parts=[ToolCall(id="c1", name="weather", arguments="{}")])
    failed = ToolResult(call_id="c1", parts=[Text(text="No sky"), File(url="https://a.example/sky.pdf")], is_error=True)
    chat = Chat(model="m", messages=[call, Message(role="tool", parts=[failed])])
    assert sent(chat)["contents"][1]["parts"] == [
        {"functionResponse": {"id": "c1", "name": "weather", "response": {"error": "No sky"}}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/sky.pdf"}},
    ]


def test_what_is_empty_says_nothing() -> None:
    empty = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
    assert sent(read(messages=[*empty, *MESSAGES]))["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]
    assert sent(read(messages=empty))["contents"] == [{"role": "user", "parts": [{"text": "."}]}]


@given(name=st.text(min_size=1, max_size=30))
def test_a_functions_name_is_told_in_googles_letters_and_comes_back(name: str) -> None:
    try:
        written = write_name(name)
    except InvalidRequest:
        assume(False)
    assert read_name(written) == name
    assert len(written) <= 128
    assert written.replace(".", "").replace("-", "").replace("_", "").replace(":", "").isascii()


@given(call_id=st.from_regex(r"[A-Za-z0-9_-]{1,24}", fullmatch=True), seal=st.text(min_size=1, max_size=40))
def test_a_seal_travels_in_a_calls_id(call_id: str, seal: str) -> None:
    joined = join_signature(call_id, seal)
    assert split_signature(joined) == (call_id, seal)
    assert set(joined) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    assert split_signature(call_id) == (call_id, None)


# Fields whose refusal is tested above, and one that Google's types only warn about.
LEFT_OUT = (
    "modalities",
    "logit_bias",
    "verbosity",
    "audio",
    "parallel_tool_calls",
    "service_tier",
    "seed",
    "image_config",
    "reasoning",
)
# The values that the law draws for these are no base64.
MADE_UP = (Opaque, Image, Audio, File)


@given(data=st.data())
def test_any_chat_that_is_not_refused_is_taken_by_googles_client(data: st.DataObject) -> None:
    chat = replace(data.draw(chats("openai")), tools=None, web_search=False, **dict.fromkeys(LEFT_OUT))
    for message in chat.messages:
        message.parts = [part for part in message.parts if not isinstance(part, MADE_UP)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                part.parts = [inner for inner in part.parts if not isinstance(inner, MADE_UP)]
    try:
        wire = sent(chat)
    except InvalidRequest:
        assume(False)
    assert all(content["parts"] for content in wire["contents"])
    assert all(one["role"] != other["role"] for one, other in pairwise(wire["contents"]))
