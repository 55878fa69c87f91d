"""Plain chats skip what adapts a chat to a provider: of each case, and of each thing that makes a chat not plain."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    EmulatedTool,
    FunctionTool,
    Image,
    Message,
    Opaque,
    Reasoning,
    ResponseFormat,
    StopEmulation,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names, emulate_tools
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import emulate_structured_output
from apps.gateway.dialects.adapting.thinking import remove_signature_owner
from apps.gateway.dialects.adapting.unsupported_fields import repair_tool_results
from tests.gateway.dialects.test_laws import CLIENTS, DIALECTS, WIRE, side_of

PLAIN = Chat(
    model="m",
    messages=[
        Message(role="system", parts=[Text(text="Be brief.")]),
        Message(role="user", parts=[Text(text="?"), Image(url="https://i.example/1.png")]),
        Message(role="assistant", parts=[Text(text="!")], extra={"phase": "final"}),
        Message(role="user", parts=[Text(text="?")]),
    ],
    max_tokens=5,
    stop=["x"],
)


def adapted(chat: Chat, dialect: Any, target: Target) -> Chat:
    """Return the chat after every step that plain chats skip."""
    chat = emulate_tools(remove_signature_owner(chat, "acme", target), dialect, target)
    for runs in (False, True):
        chat = repair_tool_results(drop_foreign_blocks(chat, target, dialect.name), target, runs=runs)
    chat = adapt_tool_names(chat, target, re.compile("x"), 1)
    return emulate_structured_output(chat, target)


def chats() -> list[Chat]:
    cases = [case for name in CLIENTS for case in sorted((WIRE / name).glob("*/request.json"))]
    return [CLIENTS[side_of(case.parent)].read_request(case.read_bytes()) for case in cases]


@pytest.mark.parametrize("name", DIALECTS)
def test_no_step_changes_a_plain_chat(name: str) -> None:
    plain = [chat for chat in [PLAIN, *chats()] if chat.is_plain]
    assert len(plain) >= 10
    for chat in plain:
        target = Target(model_name="m", facts={"structured_outputs": "tool", "web_search": False})
        assert adapted(chat, DIALECTS[name], target) is chat
        assert (target.dropped_fields, target.has_rewrites) == ([], False)


def with_part(part: Any, role: Any = "user") -> Chat:
    return replace(PLAIN, messages=[*PLAIN.messages, Message(role=role, parts=[part])])


@pytest.mark.parametrize(
    "chat",
    [
        replace(PLAIN, tools=[FunctionTool(name="f")]),
        replace(PLAIN, response_format=ResponseFormat(kind="json_object")),
        with_part(Reasoning(text="Hm"), "assistant"),
        with_part(ToolCall(id="c", name="f", arguments="{}"), "assistant"),
        with_part(ToolResult(call_id="c", parts=[Text(text="1")]), "tool"),
        with_part(Opaque(dialect="anthropic", data={"type": "search_result"})),
        replace(PLAIN, messages=[Message(role="system", parts=[], extra={"clear_at": "next_user_message"})]),
    ],
    ids=["tools", "form", "thinking", "call", "result", "block", "tool-change"],
)
def test_a_chat_with_anything_to_adapt_is_not_plain(chat: Chat) -> None:
    assert PLAIN.is_plain is True
    assert chat.is_plain is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tool_names", {"f__1": "f.1"}),
        ("emulated", {"patch": EmulatedTool(name="patch", custom=True)}),
        ("hidden_tool", "final_answer"),
        ("stop", StopEmulation(("x",), streamed=False, choices=1)),
    ],
)
def test_an_answer_is_changed_back_after_any_rewrite(name: str, value: Any) -> None:
    target = Target(model_name="m", facts={})
    assert target.has_rewrites is False
    setattr(target.rewrites, name, value)
    assert target.has_rewrites is True
    assert Target(model_name="m", facts={}).has_rewrites is False
