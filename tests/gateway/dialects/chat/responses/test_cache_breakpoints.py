"""Explicit cache breakpoints: kept towards their own format, marks for others, told where there are none."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.kernel.errors import InvalidRequest

LASTING = {"mode": "explicit", "ttl": "12h"}
SHORT = {"mode": "explicit"}
CONTENT = [
    {"type": "input_text", "text": "long", "prompt_cache_breakpoint": LASTING},
    {"type": "input_text", "text": "short", "prompt_cache_breakpoint": SHORT},
    {"type": "input_image", "image_url": "https://example.com/a.png", "prompt_cache_breakpoint": SHORT},
]


def of_responses(content: Any = CONTENT, **fields: Any) -> Chat:
    """Return a Responses client's chat."""
    body = {"model": "m", "input": [{"role": "user", "content": content}], **fields}
    return responses.read_request(json.dumps(body).encode())


def of_chat(content: Any) -> Chat:
    """Return the chat of a client of chat completions."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return openai.read_request(json.dumps(body).encode())


def write(chat: Chat, dialect: ModuleType, **facts: Any) -> tuple[Any, list[str]]:
    """Return the request to a provider, and the fields that are reported as left out."""
    target = Target(model_name="m", facts=facts, dropped_fields=[])
    body = json.loads(dialect.write_request(chat, target))
    return body, [dropped.param for dropped in target.dropped_fields]


@pytest.mark.parametrize("facts", [{}, {"takes": ["prompt_cache_breakpoint"]}], ids=["unstated", "taken"])
def test_a_provider_of_the_format_gets_breakpoints_and_options_as_they_are(facts: Any) -> None:
    options = {"mode": "explicit", "ttl": "30m"}
    chat = of_responses(prompt_cache_options=options, prompt_cache_retention="24h")
    body, told = write(chat, responses, **facts)
    marks = [part["prompt_cache_breakpoint"] for part in body["input"][0]["content"]]
    assert marks == [LASTING, SHORT, SHORT]
    assert (body["prompt_cache_options"], body["prompt_cache_retention"]) == (options, "24h")
    assert told == []


def test_anthropics_format_has_them_as_marks_and_a_stated_lifetime_as_its_longer_one() -> None:
    body, told = write(of_responses(), anthropic)
    marks = [part["cache_control"] for part in body["messages"][0]["content"]]
    assert marks == [{"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}, {"type": "ephemeral"}]
    assert told == []
    assert of_responses().cache_lifetime == "1h"


def test_a_provider_without_marks_or_a_cache_of_its_own_is_told_of_once() -> None:
    _, told = write(of_responses(CONTENT[:2]), openai)
    assert told == ["input.content.cache_control"]
    assert write(of_responses(CONTENT[:2]), openai, prompt_cache=True)[1] == []


def test_a_breakpoint_of_chat_completions_reaches_responses_and_is_told_to_others() -> None:
    content = [{"type": "text", "text": "long", "prompt_cache_breakpoint": LASTING}]
    body, told = write(of_chat(content), responses)
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "long", "prompt_cache_breakpoint": LASTING}]
    assert told == []
    body, told = write(of_chat(content), openai)
    assert body["messages"][0]["content"] == content
    assert write(of_chat(content), anthropic)[1] == ["messages[0].content[0].prompt_cache_breakpoint"]


@pytest.mark.parametrize("mark", ["explicit", [], {"ttl": 5}])
def test_a_breakpoint_that_cannot_be_meant_is_refused_by_name(mark: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        of_responses([{"type": "input_text", "text": "x", "prompt_cache_breakpoint": mark}])
    assert str(refused.value.param).startswith("input[0].content[0].prompt_cache_breakpoint")
