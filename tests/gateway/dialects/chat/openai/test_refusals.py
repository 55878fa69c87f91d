"""Refusals of OpenAI's chat format: by the field, in the client's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat import openai
from apps.kernel.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]


def read(**fields: Any) -> Chat:
    """Read a request with these fields beside a model and a message."""
    return openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def assistant(**fields: Any) -> list[dict[str, Any]]:
    return [*MESSAGES, {"role": "assistant", **fields}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": None}, "model: Required"),
        ({"model": ""}, "model: must not be empty"),
        ({"model": 1}, "model: must be a string"),
        ({"model": "x" * 513}, "model: must be at most 512 characters long"),
        ({"messages": None}, "messages: Required"),
        ({"messages": []}, "messages: must hold at least one message"),
        ({"messages": {}}, "messages: must be an array"),
        ({"messages": ["Hi"]}, "messages[0]: must be an object"),
        ({"messages": MESSAGES * 10_001}, "messages: must hold at most 10000 entries"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role: Required"),
        (
            {"messages": [{"role": "bot", "content": "Hi"}]},
            "messages[0].role: must be one of system, developer, user, assistant, tool, function",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content: Required"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content: Required"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content: must be a string or an array of parts"),
        ({"messages": assistant()}, "messages[1].content: Required"),
        ({"messages": assistant(content=None, refusal=None, tool_calls=[])}, "messages[1].content: Required"),
        ({"messages": user("Hi")}, "messages[0].content[0]: must be an object"),
        ({"messages": user({"text": "Hi"})}, "messages[0].content[0].type: Required"),
        ({"messages": user({"type": "text"})}, "messages[0].content[0].text: Required"),
        (
            {"messages": user({"type": "text", "text": ""}, {"type": "image_url", "image_url": {}})},
            "messages[0].content[1].image_url.url: Required",
        ),
        ({"messages": user({"type": "image_url"})}, "messages[0].content[0].image_url: Required"),
        (
            {"messages": user({"type": "input_audio", "input_audio": {"data": "UklG"}})},
            "messages[0].content[0].input_audio.format: Required",
        ),
        (
            {"messages": user({"type": "file", "file": {"filename": "a.pdf"}})},
            "messages[0].content[0].file.file_data: Required",
        ),
        (
            {"messages": user({"type": "text", "text": "", "cache_control": {"ttl": 5}})},
            "messages[0].content[0].cache_control.ttl: must be a string",
        ),
        ({"messages": [{"role": "tool", "content": "ok"}]}, "messages[0].tool_call_id: Required"),
        ({"messages": [{"role": "function", "content": "ok"}]}, "messages[0].name: Required"),
        (
            {"messages": assistant(tool_calls=[{"function": {"name": "f"}}])},
            "messages[1].tool_calls[0].id: Required",
        ),
        (
            {"messages": assistant(tool_calls=[{"id": "c", "function": {"arguments": ""}}])},
            "messages[1].tool_calls[0].function.name: Required",
        ),
        (
            {"messages": assistant(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": 1}}])},
            "messages[1].tool_calls[0].function.arguments: must be a string",
        ),
        (
            {"messages": assistant(content="", reasoning_details=[{"text": 1}])},
            "messages[1].reasoning_details[0].text: must be a string",
        ),
        ({"stream": "yes"}, "stream: must be true or false"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage: must be true or false"),
        ({"temperature": 2.01}, "temperature: must be between 0 and 2"),
        ({"temperature": -0.01}, "temperature: must be between 0 and 2"),
        ({"temperature": "1"}, "temperature: must be a number"),
        ({"temperature": True}, "temperature: must be a number"),
        ({"top_p": 1.1}, "top_p: must be between 0 and 1"),
        ({"frequency_penalty": -2.1}, "frequency_penalty: must be between -2 and 2"),
        ({"presence_penalty": 2.1}, "presence_penalty: must be between -2 and 2"),
        ({"max_tokens": 0}, "max_tokens: must be between 1 and 1000000000"),
        ({"max_tokens": 1.5}, "max_tokens: must be an integer"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens: contradicts max_completion_tokens"),
        ({"n": 0}, "n: must be between 1 and 128"),
        ({"n": 129}, "n: must be between 1 and 128"),
        ({"n": True}, "n: must be an integer"),
        ({"seed": 2**63}, "seed: must be between -9223372036854775808 and 9223372036854775807"),
        ({"stop": ["a"] * 5}, "stop: must hold at most 4 entries"),
        ({"stop": ["a", 1]}, "stop[1]: must be a string"),
        ({"logit_bias": {"50256": 101}}, "logit_bias.50256: must be between -100 and 100"),
        ({"top_logprobs": 2}, "top_logprobs: needs logprobs to be true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs: must be between 0 and 20"),
        (
            {"reasoning_effort": "extreme"},
            "reasoning_effort: must be one of none, minimal, low, medium, high, xhigh, max",
        ),
        (
            {"reasoning_effort": "low", "reasoning": {"effort": "high"}},
            "reasoning_effort: contradicts reasoning.effort",
        ),
        ({"reasoning": {"max_tokens": 0}}, "reasoning.max_tokens: must be between 1 and 1000000000"),
        ({"reasoning": {"enabled": False, "effort": "low"}}, "reasoning.enabled: contradicts effort"),
        ({"effort": "xhigh"}, "effort: must be one of low, medium, high"),
        (
            {"plugins": [{"id": "magic"}]},
            "plugins[0].id: must be one of response-healing, web, file-parser, moderation, auto-router, "
            "auto-beta-router, context-compression, web-fetch, fusion, pareto-router, switchyard-router",
        ),
        ({"plugins": [{}]}, "plugins[0].id: Required"),
        ({"image_config": {"n": 0}}, "image_config.n: must be at least 1"),
        (
            {"response_format": {"type": "yaml"}},
            "response_format.type: must be one of text, json_object, json_schema",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: Required"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema: must be an object",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function: Required"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name: Required"),
        ({"tools": [{}]}, "tools[0].type: Required"),
        ({"tools": [{"type": "x"}] * 1001}, "tools: must hold at most 1000 entries"),
        (
            {"tools": [{"type": "web_search", "search_context_size": "huge"}]},
            "tools[0].search_context_size: must be one of low, medium, high",
        ),
        ({"tool_choice": "any"}, "tool_choice: must be one of auto, none, required"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function: Required"),
        ({"tool_choice": {"type": "magic"}}, "tool_choice.type: must be one of function, custom, allowed_tools"),
    ],
)
def test_a_refusal_names_the_field_in_the_clients_words(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(**fields)
    error = refusal.value
    assert (error.status, error.type, error.code) == (400, "invalid_request_error", "invalid_parameters")
    assert error.message == message
    assert error.param == message.partition(":")[0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Hi",
        b"[]",
        b"null",
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "x"} and more',
        b'{"x": ' * 129 + b"1" + b"}" * 129,
        b'{"x": ' + b"[" * 128 + b"]" * 128 + b"}",
        b"[" * 100_000,
        b'{"x": ' + b"9" * 10_000 + b"}",
        b'{"x": [' + b"[],".join([b""] * 1_000_000) + b"[]]}",
    ],
)
def test_what_is_no_json_object_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        openai.read_request(body)
    assert (refusal.value.status, refusal.value.code, refusal.value.param) == (400, "invalid_json", None)
