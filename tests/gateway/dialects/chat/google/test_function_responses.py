"""Results of functions, from clients of Google's format: objects stay objects there, and are text once elsewhere."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Target, Text, ToolResult
from apps.gateway.dialects.chat import anthropic, bedrock, google, openai, responses

PIXEL = {"mimeType": "image/png", "data": "iVBORw0KGgo="}


def asked(response: Any, **fields: Any) -> Chat:
    """Return the chat of a client whose function answered."""
    call = {"functionCall": {"id": "c1", "name": "f", "args": {}}}
    result = {"functionResponse": {"id": "c1", "name": "f", "response": response, **fields}}
    contents = [
        {"role": "user", "parts": [{"text": "?"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [result]},
    ]
    return google.read_request(json.dumps({"contents": contents}).encode())


def rewritten(chat: Chat) -> Any:
    """Return the last turn as Google gets it where the client's bytes cannot pass."""
    body = google.write_request(replace(chat, source=None), Target(model_name="m", facts={}))
    return json.loads(body)["contents"][-1]["parts"]


@pytest.mark.parametrize(
    "response",
    [
        {"degrees": 21, "sky": {"clouds": []}},
        {"result": [1, {"a": None}]},
        {"output": {"degrees": 21}},
        {"output": {"output": 1}},
        {"output": True},
        {"error": {"code": 7}},
        {"output": '{"degrees": 21}'},
        {"output": "Sunny"},
        {},
    ],
)
def test_an_object_stays_the_same_object_at_google(response: Any) -> None:
    assert rewritten(asked(response)) == [{"functionResponse": {"id": "c1", "name": "f", "response": response}}]


def test_numbers_of_an_object_keep_their_digits() -> None:
    body = google.write_request(
        replace(asked({"n": 12345678901234567890123}), source=None), Target(model_name="m", facts={})
    )
    assert b'"response":{"n":12345678901234567890123}' in body


def test_an_object_that_a_guardrail_has_broken_is_text() -> None:
    chat = asked({"name": "Ada"})
    masked = [
        replace(message, parts=[replace(part, parts=[Text(text='{"name":[MASKED]}')])])
        if isinstance(part := message.parts[0], ToolResult)
        else message
        for message in chat.messages
    ]
    (part,) = rewritten(replace(chat, messages=masked))
    assert part["functionResponse"]["response"] == {"output": '{"name":[MASKED]}'}


def test_media_stay_in_the_result_that_they_came_in() -> None:
    parts = [{"inlineData": PIXEL}]
    (part,) = rewritten(asked({"ok": True}, parts=parts, scheduling="SILENT"))
    assert part == {
        "functionResponse": {
            "id": "c1",
            "name": "f",
            "response": {"ok": True},
            "parts": parts,
            "scheduling": "SILENT",
        }
    }


@pytest.mark.parametrize(
    ("dialect", "found"),
    [
        (openai, lambda wire: wire["messages"][-1]["content"]),
        (responses, lambda wire: wire["input"][-1]["output"]),
        (anthropic, lambda wire: wire["messages"][-1]["content"][0]["content"]),
        (bedrock, lambda wire: wire["messages"][-1]["content"][0]["toolResult"]["content"][0]["text"]),
    ],
)
@pytest.mark.parametrize("response", [{"a": {"b": 1}}, {"output": {"a": {"b": 1}}}])
def test_elsewhere_an_object_is_text_exactly_once(dialect: ModuleType, found: Any, response: Any) -> None:
    wire = json.loads(dialect.write_request(asked(response), Target(model_name="m", facts={})))
    assert found(wire) == '{"a":{"b":1}}'


def test_text_of_another_client_stays_text_at_google() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"$ref":"#/a"}'},
    ]
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages}).encode())
    assert rewritten(chat)[0]["functionResponse"]["response"] == {"output": '{"$ref":"#/a"}'}
    assert chat.messages[-1] == Message(
        role="tool", parts=[ToolResult(call_id="c1", parts=[Text(text='{"$ref":"#/a"}')])]
    )
