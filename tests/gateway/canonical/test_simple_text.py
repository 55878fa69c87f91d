"""A chat of simple text: it takes short cuts, so a chat that asks for anything special must not be one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apps.gateway.canonical.chat import (
    SPECIAL_FIELDS,
    CacheMark,
    Chat,
    FunctionTool,
    Image,
    Message,
    Part,
    Reasoning,
    ReasoningRequest,
    ResponseFormat,
    RoutingPreferences,
    Text,
)

# Fields that ask for no capability and have no price: the question, how it is written, and how to sample.
USUAL_FIELDS = {
    *("model", "messages", "stream", "include_usage", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed"),
    *("frequency_penalty", "presence_penalty", "logit_bias", "user", "metadata", "prompt_cache_key", "verbosity"),
    *("store", "dialect", "source", "dropped_fields", "usage_details", "metadata_as_text"),
}


def asking(*parts: Part, **fields: Any) -> Chat:
    """Return a chat of one message."""
    return Chat(**{"model": "m", "messages": [Message(role="user", parts=list(parts) or [Text(text="hi")])], **fields})


def test_every_field_is_either_usual_or_special() -> None:
    assert USUAL_FIELDS.isdisjoint(SPECIAL_FIELDS)
    assert {*USUAL_FIELDS, *SPECIAL_FIELDS} == set(Chat.__struct_fields__)


def test_text_with_usual_fields_is_simple() -> None:
    conversation = [
        Message(role="system", parts=[Text(text="be brief")]),
        Message(role="user", parts=[Text(text="hi"), Text(text="you")]),
        Message(role="assistant", parts=[Text(text="yes?")]),
    ]
    fields = {"stream": True, "max_tokens": 5, "temperature": 0.5, "stop": ["x"], "user": "u", "metadata": {"a": 1}}
    assert Chat(model="openai/fox", messages=conversation, **fields).is_simple_text


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"tools": [FunctionTool(name="find")]},
        {"response_format": ResponseFormat(kind="text")},
        {"reasoning": ReasoningRequest()},
        {"service_tier": "flex"},
        {"web_search": True},
        {"extra": {"cachedContent": "cachedContents/1"}},
        {"task": "completions"},
        {"preferences": RoutingPreferences()},
        {"betas": ["context-1m"]},
        {"echo": True},
        # Its ending may ask for a search of the web, or for a provider of the organization's own.
        {"model": "fox:online"},
    ],
)
def test_a_chat_that_asks_for_more_is_not_simple(fields: dict[str, Any]) -> None:
    assert not asking(**fields).is_simple_text


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://example.com/a.png"),
        Reasoning(text="hm"),
        Text(text="hi", cache=CacheMark()),
        Text(text="hi", extra={"citations": []}),
    ],
)
def test_a_part_that_is_more_than_text_is_not_simple(part: Part) -> None:
    assert not asking(Text(text="hi"), part).is_simple_text


@pytest.mark.parametrize("fields", [{"name": "ann"}, {"extra": {"audio": {"id": "a"}}}])
def test_a_message_with_more_than_text_is_not_simple(fields: dict[str, Any]) -> None:
    message = Message(role="user", parts=[Text(text="hi")], **fields)
    assert not Chat(model="m", messages=[message]).is_simple_text


def test_a_changed_copy_is_looked_at_again() -> None:
    chat = asking()
    assert chat.is_simple_text
    assert not msgspec.structs.replace(chat, n=2).is_simple_text
