"""A refusal of a guardrail names the place of the body that the client sent, whatever its format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.guard.client_path import find_client_path
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller

TERM = "project zanzibar"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GEMINI, EMBEDDINGS = "/v1beta/models/sandbox%2Fecho:generateContent", "/v1/embeddings"
USER = {"role": "user", "content": "hello"}
LOOK = {"name": "look", "description": "looks"}
LARGE = f"[{'1' * 70_000}]"
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "sent"}
SCHEMA = {"type": "object", "properties": {"to": {"type": "string", "description": f"whom: {TERM}"}}}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def calling(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call("mail", arguments)]}


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("path", "fields", "place"),
    [
        (CHAT, {"messages": [{"role": "user", "content": TERM}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": blocks("hello", TERM)}]}, "messages[0].content[1].text"),
        (CHAT, {"messages": [USER, {"role": "system", "content": TERM}]}, "messages[1].content"),
        (
            CHAT,
            {"messages": [USER, calling(json.dumps({"to": TERM})), TOLD]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (CHAT, {"messages": [USER], "x_unknown": {"deep": ["", TERM]}}, "x_unknown.deep[1]"),
        (MESSAGES, {"messages": [{"role": "user", "content": TERM}], "max_tokens": 9}, "messages[0].content"),
        (MESSAGES, {"messages": [USER], "system": TERM, "max_tokens": 9}, "system"),
        (MESSAGES, {"messages": [USER], "system": blocks("", TERM), "max_tokens": 9}, "system[1].text"),
        (
            MESSAGES,
            {"messages": [USER], "tools": [{**LOOK, "input_schema": SCHEMA}], "max_tokens": 9},
            "tools[0].input_schema.properties.to.description",
        ),
        (RESPONSES, {"input": TERM}, "input"),
        (RESPONSES, {"input": "hello", "instructions": TERM}, "instructions"),
        (RESPONSES, {"input": [USER, {"role": "user", "content": TERM}]}, "input[1].content"),
        (GEMINI, {"contents": [{"parts": [{"text": "hello"}, {"text": TERM}]}]}, "contents[0].parts[1].text"),
        (
            GEMINI,
            {"contents": [{"parts": [{"text": "a"}]}], "system_instruction": {"parts": [{"text": TERM}]}},
            "system_instruction.parts[0].text",
        ),
        (EMBEDDINGS, {"input": TERM, "model": "sandbox/embedder"}, "input"),
        (EMBEDDINGS, {"input": [TERM], "model": "sandbox/embedder"}, "input[0]"),
        (EMBEDDINGS, {"input": ["hello", TERM], "model": "sandbox/embedder"}, "input[1]"),
        ("/v1/completions", {"prompt": TERM}, "prompt"),
        ("/v1/completions", {"prompt": [TERM]}, "prompt[0]"),
    ],
)
def test_a_refusal_names_the_place_that_the_client_sent(
    caller: Caller, path: str, fields: dict[str, Any], place: str
) -> None:
    guard(caller)
    forbid(caller, TERM)
    headers = {"Authorization": f"Bearer {caller.token}", "anthropic-version": "2023-06-01"}
    body = fields if path == GEMINI else {"model": "sandbox/echo", **fields}
    answer = caller.client.post(path, body, content_type="application/json", headers=headers)
    assert answer.status_code == 400, answer.content
    message = answer.json()["error"]["message"]
    assert message.startswith(f"Blocked by the guardrail 'Terms' in {place}: "), message
    param = answer.json()["error"].get("param")
    assert param in (None, place.partition("[")[0].partition(".")[0])


@pytest.mark.parametrize(
    ("path", "fields", "place"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LARGE}]}, "messages[0].content"),
        (MESSAGES, {"messages": [USER], "system": LARGE, "max_tokens": 9}, "system"),
        (RESPONSES, {"input": LARGE}, "input"),
    ],
)
def test_what_cannot_be_looked_at_is_named_as_the_client_wrote_it(
    caller: Caller, path: str, fields: dict[str, Any], place: str
) -> None:
    guard(caller)
    forbid(caller, TERM)
    headers = {"Authorization": f"Bearer {caller.token}", "anthropic-version": "2023-06-01"}
    body = {"model": "sandbox/echo", **fields}
    answer = caller.client.post(path, body, content_type="application/json", headers=headers)
    message = answer.json()["error"]["message"]
    told = message.removeprefix("Invalid request format: ")
    assert (answer.status_code, told) == (400, f"{place}: the JSON holds a number longer than 65536 characters")


def test_the_place_is_that_of_the_message_that_was_refused_where_two_say_the_same() -> None:
    body = json.dumps({"messages": [{"content": "twice"}, {"content": "twice"}], "system": "twice"}).encode()
    places = [find_client_path(body, ("twice",), before, "") for before in range(4)]
    # Instructions come first; after the last there is none, and the last is taken.
    assert places == ["system", "messages[0].content", "messages[1].content", "messages[1].content"]


@pytest.mark.parametrize("body", [b"--form\r\n", b"[" * 100_000, b'{"messages": []}', b""])
def test_what_is_not_found_has_no_place(body: bytes) -> None:
    assert find_client_path(body, ("said",), 0, "said") is None


def test_a_path_says_no_names_that_are_no_words_and_is_short() -> None:
    odd = json.dumps({"extra": {"an odd\nname": {"said": "this"}}}).encode()
    assert find_client_path(odd, ("this",), 0, "") == "extra"
    deep: Any = "this"
    for _ in range(50):
        deep = {"down": deep}
    assert find_client_path(json.dumps(deep).encode(), ("this",), 0, "") == ".".join(["down"] * 16)
