"""Thinking under one maker's seal, on its way to another: left out, and kept for its maker."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    Reasoning,
    ReasoningRequest,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.adapting.thinking import join_signature

SEALS = {
    "anthropic": "anthropic-claude-v1",
    "google": "google-gemini-v1",
    "responses": "openai-responses-v1",
}
# Whose seals a format takes back.
TAKES = {
    "anthropic": "anthropic",
    "azure_anthropic": "anthropic",
    "vertex_anthropic": "anthropic",
    "bedrock": "anthropic",
    "google": "google",
    "vertex": "google",
    "responses": "responses",
    "openai": None,
    "vertex_openai": None,
    "cohere": None,
}
FACTS: dict[str, dict[str, Any]] = {
    "bedrock": {"reasoning_form": "thinking", "reasoning_efforts": ["medium"]},
    "openai": {"reasoning_field": "reasoning_content"},
}


def seal_text(maker: str) -> str:
    """Return a seal of a maker's, in base64."""
    return b64encode(f"sealed by {maker}".encode()).decode()


def conversation(*makers: str) -> Chat:
    """Return a chat whose model thought, under the seals of these makers, before it called a tool."""
    blocks = [
        Reasoning(text="" if maker == "responses" else f"As {maker}.", format=SEALS[maker], **sealed(maker))
        for maker in makers
    ]
    call_id = join_signature("call_1", seal_text("google")) if "google" in makers else "call_1"
    return Chat(
        model="m",
        max_tokens=4_000,
        messages=[
            Message(role="user", parts=[Text(text="?")]),
            Message(role="assistant", parts=[*blocks, ToolCall(id=call_id, name="weather", arguments="{}")]),
            Message(role="tool", parts=[ToolResult(call_id=call_id, parts=[Text(text="Sun")])]),
        ],
        tools=[FunctionTool(name="weather")],
        reasoning=ReasoningRequest(effort="medium"),
    )


def sealed(maker: str) -> dict[str, Any]:
    """Return where a maker puts its seal."""
    seal = seal_text(maker)
    return {"data": seal, "id": "rs_1"} if maker == "responses" else {"signature": seal}


def written(dialect: str, chat: Chat) -> str:
    """Return what a target of the format is sent."""
    found = find_dialect(dialect)
    assert found is not None
    target = Target(model_name="model", facts=FACTS.get(dialect, {}), max_output=8_000)
    return json.dumps(json.loads(found.write_request(chat, target)))


@pytest.mark.parametrize("dialect", TAKES)
def test_seals_go_to_their_maker_and_to_nobody_else(dialect: str) -> None:
    chat = conversation(*SEALS)
    before = json.dumps([repr(message) for message in chat.messages])
    sent = written(dialect, chat)
    for maker in SEALS:
        assert (seal_text(maker) in sent) is (TAKES[dialect] == maker), (dialect, maker)
    # The next candidate will get the messages that the client sent.
    assert json.dumps([repr(message) for message in chat.messages]) == before


@pytest.mark.parametrize("dialect", TAKES)
def test_a_call_has_its_bare_id_where_nobody_knows_the_seal_in_it(dialect: str) -> None:
    sent = written(dialect, conversation("google"))
    if TAKES[dialect] == "google":
        assert seal_text("google") in sent
        assert "__sealed__" not in sent
    else:
        assert seal_text("google") not in sent


@pytest.mark.parametrize("dialect", TAKES)
def test_whose_seals_are_asked_of_the_store(dialect: str) -> None:
    found = find_dialect(dialect)
    assert found is not None
    target = Target(model_name="model", facts=FACTS.get(dialect, {}), max_output=8_000)
    expected = {"anthropic": SEALS["anthropic"], "responses": SEALS["responses"]}.get(TAKES[dialect] or "")
    assert found.signature_format(conversation(), target) == expected
