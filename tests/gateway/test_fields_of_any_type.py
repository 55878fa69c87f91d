"""Fields with values of any type, in every place of a body: refused by name or passed on, never a defect.

The field that names a type (`type`) is looked up in many places, and a list cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db

MODEL = "sandbox/tools"
ANYTHING: tuple[Any, ...] = ([], {"a": 1}, [None], 1.5, "", None)
SCHEMA = {"type": "object", "properties": {}}
CHAT = {
    "model": MODEL,
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "name": "bob", "content": [{"type": "text", "text": "t"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "y"}],
            "reasoning_details": [{"type": "reasoning.text", "text": "x", "signature": "s", "index": 0}],
            "annotations": [{"type": "url_citation", "url_citation": {"url": "x", "title": "t"}}],
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "provider": {"order": ["sandbox"], "sort": "price", "max_price": {"prompt": 1}},
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "stop": ["a"],
}
MESSAGES = {
    "model": MODEL,
    "max_tokens": 10,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "n", "server_name": "s", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [{"type": "text", "text": "x"}]},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]},
    ],
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "f"},
}
RESPONSES = {
    "model": MODEL,
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "x"}]},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "x", "name": "a", "arguments": "{}", "output": "x"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}, {"type": "custom", "name": "g"}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
}
GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "t"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "AAAA"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}, "topK": 3},
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1beta/models/sandbox%2Ftools:generateContent": GEMINI,
}


def changed(body: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each place inside of a body, with each value that is put there."""
    members = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, inner in members:
        yield from (((*place, name), value) for value in ANYTHING)
        yield from changed(inner, (*place, name))


def put(body: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the body with a value at a place."""
    whole: Any = deepcopy(body)
    inner = whole
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return dict(whole)


def post(caller: Caller, path: str, body: dict[str, Any]) -> Any:
    said = {"authorization": f"Bearer {caller.token}"}
    return caller.client.post(path, body, content_type="application/json", headers=said)


@pytest.mark.parametrize("path", BODIES)
def test_no_field_of_a_format_is_a_defect_whatever_its_type(caller: Caller, path: str) -> None:
    assert post(caller, path, BODIES[path]).status_code == 200
    tried, refused = 0, 0
    for place, value in changed(BODIES[path]):
        answer = post(caller, path, put(BODIES[path], place, value))
        assert answer.status_code < 500, (place, value, answer.content)
        tried, refused = tried + 1, refused + (answer.status_code == 400)
    assert tried > 150
    assert refused > tried / 2


@pytest.mark.parametrize("value", [[], {}, [1]])
def test_an_item_whose_type_is_no_text_is_refused_by_name(caller: Caller, value: Any) -> None:
    answer = post(caller, "/v1/responses", {"model": "sandbox/echo", "input": [{"type": value}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].type")


@pytest.mark.parametrize("wire_format", PLACES)
def test_thinking_of_no_known_type_is_none_for_any_provider(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wire_format: str
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    for value in ([], {}, [1]):
        answer = caller.chat("hi", model=f"{OTHER}/echo", thinking={"type": value, "budget_tokens": 1_024})
        assert answer.status_code in {200, 400}, (value, answer.content)
