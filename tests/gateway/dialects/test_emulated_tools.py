"""Custom tools and namespaces as functions, and back: names, grammars, earlier calls, and text cut anywhere."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Chat, FunctionTool, Reasoning, Target, ToolCall
from apps.gateway.canonical.events import Event, Finished, ToolCallDelta, ToolCallStarted, fold
from apps.gateway.dialects.adapting.emulated_tools import FreeTextInput, emulate_tools
from apps.gateway.dialects.adapting.undo_rewrites import undo_rewrites
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.gateway.dialects.chat.responses.client import decrypt_blocks, encrypt_blocks
from apps.gateway.dialects.reading.fields import Malformed
from apps.gateway.endpoints.response_state import OrganizationCipher
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.test_laws import SUMMARY

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
NESTED = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "x"'}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "agents__spawn", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch", "description": "Patches.", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "agents",
        "description": "About agents.",
        "tools": [{"type": "function", "name": "spawn", "description": "Spawns."}, {"type": "custom", "name": "say"}],
    },
]


def target() -> Target:
    """Return a provider about which nothing is stated."""
    return Target(model_name="m", facts={})


def asked(**fields: Any) -> Chat:
    """Return the chat of a request."""
    return responses.read_request(json.dumps({"model": "m", "input": "?", **fields}).encode())


def test_each_tool_becomes_a_function_of_its_own_name() -> None:
    where = target()
    chat = emulate_tools(asked(tools=TOOLS, tool_choice={"type": "custom", "name": "patch"}), openai.PROVIDER, where)
    functions = [tool for tool in chat.tools or () if isinstance(tool, FunctionTool)]
    assert [tool.name for tool in functions] == ["agents__spawn", "patch", "agents__spawn_", "agents__say"]
    assert functions[1].description == 'Patches.\n\nThe input must match this grammar (lark):\nstart: "x"'
    assert (functions[1].parameters or {})["required"] == ["input"]
    assert functions[2].description == "About agents.\n\nSpawns."
    assert chat.tool_choice is not None
    assert chat.tool_choice.name == "patch"
    assert set(where.rewrites.emulated) == {"patch", "agents__spawn_", "agents__say"}


def test_a_format_that_has_them_gets_them_as_they_are() -> None:
    chat = asked(tools=TOOLS)
    assert emulate_tools(chat, responses.PROVIDER, target()) is chat
    of_openai = asked_in_chat()
    # OpenAI's chat format has custom tools of its own, which the Responses format takes, too.
    assert emulate_tools(of_openai, openai.PROVIDER, target()) is of_openai
    assert emulate_tools(of_openai, responses.PROVIDER, target()) is of_openai


def test_a_custom_tool_of_chat_completions_is_a_function_elsewhere() -> None:
    where = target()
    call = {"id": "1", "type": "custom", "custom": {"name": "patch", "input": "+x"}}
    turns: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    choice = {"type": "custom", "custom": {"name": "patch"}}
    chat = emulate_tools(asked_in_chat(*turns, tool_choice=choice), anthropic.PROVIDER, where)
    wire = json.loads(anthropic.write_request(chat, where))
    assert [(tool["name"], tool["description"]) for tool in wire["tools"]] == [
        ("patch", 'Patches.\n\nThe input must match this grammar (lark):\nstart: "x"')
    ]
    assert wire["tool_choice"] == {"type": "tool", "name": "patch"}
    assert wire["messages"][1]["content"] == [
        {"type": "tool_use", "id": "1", "name": "patch", "input": {"input": "+x"}}
    ]
    told: list[Event] = [
        ToolCallStarted(index=0, id="2", name="patch"),
        ToolCallDelta(index=0, arguments='{"input": "-x"}'),
        Finished(reason="tool_calls"),
    ]
    reply = json.loads(openai.write_reply(fold(undo_rewrites(told, where)), SUMMARY, chat))
    assert reply["choices"][0]["message"]["tool_calls"] == [
        {"id": "2", "custom": {"name": "patch", "input": "-x"}, "type": "custom"}
    ]


def test_a_tool_that_only_another_maker_runs_is_refused_by_name() -> None:
    chat = asked_in_chat(tools=[{"type": "code_interpreter"}])
    with pytest.raises(InvalidRequest) as refusal:
        emulate_tools(chat, anthropic.PROVIDER, target())
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", "tools[0]")
    assert "code_interpreter" in refusal.value.message


def asked_in_chat(*turns: dict[str, Any], **fields: Any) -> Chat:
    """Return the chat of a request for a completion with a custom tool."""
    custom = {"name": "patch", "description": "Patches.", "format": NESTED}
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "?"}, *turns]}
    return openai.read_request(json.dumps({**body, "tools": [{"type": "custom", "custom": custom}], **fields}).encode())


def test_earlier_calls_are_written_as_they_would_be_made_now() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": 'a "b"'},
        {"type": "function_call", "call_id": "2", "namespace": "agents", "name": "spawn", "arguments": "{}"},
    ]
    chat = emulate_tools(
        asked(input=[{"role": "user", "content": "?"}, *items], tools=TOOLS), anthropic.PROVIDER, target()
    )
    calls = [part for message in chat.messages for part in message.parts if isinstance(part, ToolCall)]
    assert [(call.name, call.arguments, call.extra) for call in calls] == [
        ("patch", '{"input":"a \\"b\\""}', None),
        ("agents__spawn_", "{}", None),
    ]


def test_calls_come_back_under_the_clients_names() -> None:
    where = target()
    emulate_tools(asked(tools=TOOLS), openai.PROVIDER, where)
    told: list[Event] = [
        ToolCallStarted(index=0, id="1", name="agents__say"),
        ToolCallDelta(index=0, arguments='{"input": "hi'),
        ToolCallDelta(index=0, arguments=' there"}'),
        ToolCallStarted(index=1, id="2", name="agents__spawn"),
        ToolCallDelta(index=1, arguments="{}"),
        ToolCallStarted(index=2, id="3", name="patch"),
        ToolCallDelta(index=2, arguments='{"text": "of another shape"}'),
        Finished(reason="tool_calls"),
    ]
    assert list(undo_rewrites(told, where)) == [
        ToolCallStarted(index=0, id="1", name="say", extra={"namespace": "agents", "type": "custom"}),
        ToolCallDelta(index=0, arguments="hi"),
        ToolCallDelta(index=0, arguments=" there"),
        ToolCallStarted(index=1, id="2", name="agents__spawn"),
        ToolCallDelta(index=1, arguments="{}"),
        ToolCallStarted(index=2, id="3", name="patch", extra={"type": "custom"}),
        ToolCallDelta(index=2, arguments="of another shape"),
        Finished(reason="tool_calls"),
    ]


@given(text=st.text(), ascii_only=st.booleans(), size=st.integers(1, 9))
def test_free_text_is_the_same_wherever_its_arguments_are_cut(text: str, ascii_only: bool, size: int) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    reader = FreeTextInput()
    pieces = [reader.feed(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert "".join(pieces) + reader.end() == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("", ""), ("{}", ""), ("plain", "plain"), ('"quoted"', "quoted"), ('{"n": 1}', '{"n": 1}'), ("[1]", "[1]")],
)
def test_arguments_of_another_shape_are_taken_as_they_are(arguments: str, text: str) -> None:
    reader = FreeTextInput()
    assert reader.feed(arguments) + reader.end() == text


def test_reasoning_opens_for_its_own_organization_only_and_only_unchanged() -> None:
    blocks = [Reasoning(text="as you know", signature="s", format="anthropic-claude-v1")]
    mine, others = OrganizationCipher(uuid4()), OrganizationCipher(uuid4())
    text = encrypt_blocks(blocks, mine)
    assert blocks[0].text not in text
    assert decrypt_blocks(text, mine) == blocks
    for content, cipher in ((text, others), (text, None), (text[:-6] + "AAAAA=", mine), ("gwr1.", mine)):
        with pytest.raises(Malformed):
            decrypt_blocks(content, cipher)


def test_what_a_function_cannot_say_of_a_custom_or_namespaced_tool_is_told() -> None:
    where = target()
    inner = {"type": "function", "name": "spawn", "defer_loading": True, "output_schema": {"type": "string"}}
    tools = [
        {"type": "custom", "name": "patch", "allowed_callers": ["programmatic"], "async": True},
        {"type": "namespace", "name": "agents", "tools": [{"type": "custom", "name": "say"}, inner]},
    ]
    emulate_tools(asked(tools=tools), anthropic.PROVIDER, where)
    assert [dropped.param for dropped in where.dropped_fields] == [
        "tools[0].allowed_callers",
        "tools[0].async",
        "tools[1].tools[1].defer_loading",
        "tools[1].tools[1].output_schema",
    ]


def test_what_asks_for_what_happens_anyway_is_no_loss() -> None:
    where = target()
    usual = {"allowed_callers": ["direct"], "async": False, "defer_loading": False, "output_schema": None}
    emulate_tools(asked(tools=[{"type": "custom", "name": "patch", **usual}]), anthropic.PROVIDER, where)
    assert where.dropped_fields == []
