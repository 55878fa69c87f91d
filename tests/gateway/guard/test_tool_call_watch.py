"""The watch of tool calls: which calls it collects, what it compares them with, and its bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.canonical.events import Event, TextDelta, ToolCallDelta, ToolCallStarted
from apps.gateway.guard import tool_call_watch
from apps.gateway.guard.placeholders import MaskedValue
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.tool_call_watch import MAX_ARGUMENT_CHARACTERS, MAX_CALLS, ToolCallWatch, is_checked
from apps.guardrails.scanning.engine import SystemRuleState
from tests.guardrails.rules_in_force import compiled

EVE = "eve@evil.example.org"
CALLED = ToolCall(id="c1", name="read_mail", arguments='{"folder": "inbox"}')
ON = {"tool_argument_origin": SystemRuleState()}


def message(role: Role, *parts: Part) -> Message:
    return Message(role=role, parts=list(parts))


def result(*parts: Part, name: str | None = None) -> Message:
    return message("tool", ToolResult(call_id="c1", parts=list(parts), name=name))


def chat_of(*messages: Message, **fields: Any) -> Chat:
    return Chat(model="m", messages=list(messages), **fields)


def guard_of(**values: str) -> RequestGuard:
    guard = RequestGuard(compiled(system=ON), "retain")
    guard.masked_values = {f"[{word}]": MaskedValue(value) for word, value in values.items()}
    return guard


def call(name: str, arguments: str, index: int = 0, choice: int = 0) -> list[Event]:
    """Return the events of a call whose arguments come in pieces of three characters."""
    pieces = [arguments[at : at + 3] for at in range(0, len(arguments), 3)]
    return [
        ToolCallStarted(choice=choice, index=index, id=f"call_{index}", name=name),
        *(ToolCallDelta(choice=choice, index=index, arguments=piece) for piece in pieces),
    ]


def marked(chat: Chat, events: list[Event], guard: RequestGuard | None = None) -> list[str]:
    """Return the patterns of the findings in an answer to a chat."""
    guard = guard or guard_of()
    watch = ToolCallWatch(guard, chat, "", {})
    for event in events:
        watch.take(event)
    watch.check(0)
    assert len(guard.violations) == len(guard.marked_arguments)
    return [draft.matched_pattern for draft in guard.violations]


SEND = call("send_mail", json.dumps({"to": EVE}))
FOUND = ["email in send_mail.to from read_mail"]


def test_a_call_is_compared_with_the_conversation_by_who_spoke() -> None:
    read = (message("user", Text(text="Read")), message("assistant", CALLED), result(Text(text=f"From {EVE}")))
    assert marked(chat_of(*read), SEND) == FOUND
    for role in ("user", "system", "developer"):
        assert marked(chat_of(*read, message(role, Text(text=f"It is {EVE}"))), SEND) == []
    assert marked(chat_of(message("assistant", Reasoning(text=EVE)), *read), SEND) == []
    assert marked(chat_of(message("assistant", ToolCall(id="c0", name="find", arguments=EVE)), *read), SEND) == []
    assert marked(chat_of(*read, message("assistant", Text(text=EVE))), SEND) == FOUND
    tool = FunctionTool(name="send_mail", parameters={"properties": {"to": {"enum": [EVE]}}})
    assert marked(chat_of(*read, tools=[tool]), SEND) == []


def test_results_of_providers_own_tools_are_results() -> None:
    block = {"type": "web_search_tool_result", "content": [{"url": "https://evil.example.org/a"}]}
    chat = chat_of(message("user", Text(text="Search")), message("assistant", Opaque(dialect="anthropic", data=block)))
    post = call("post_page", '{"url": "https://evil.example.org/b"}')
    assert marked(chat, post) == ["host in post_page.url from web_search_tool_result"]
    block["type"] = "server_tool_use"
    assert marked(chat, post) == []
    data = {"type": "search_result", "source": EVE}
    assert marked(chat_of(result(Opaque(dialect="anthropic", data=data), name="look")), SEND) == [
        "email in send_mail.to from look"
    ]


def test_placeholders_are_compared_by_their_values() -> None:
    masked = call("send_mail", '{"to": "[EMAIL_1]"}')
    read = (message("user", Text(text="Read")), message("assistant", CALLED))
    chat = chat_of(*read, result(Text(text="From [EMAIL_1]")))
    assert marked(chat, masked, guard_of(EMAIL_1=EVE)) == FOUND
    # The user wrote it elsewhere, where no rule masks.
    known = chat_of(*read, result(Text(text="From [EMAIL_1]")), message("user", Text(text=EVE)))
    assert marked(known, masked, guard_of(EMAIL_1=EVE)) == []
    assert marked(chat, SEND, guard_of(EMAIL_1=EVE)) == FOUND


def test_calls_of_all_choices_are_checked_and_other_events_are_not() -> None:
    chat = chat_of(message("assistant", CALLED), result(Text(text=f"{EVE} +49 30 1234567")))
    phone = call("call_phone", '{"sent": 1}', index=2) + call("send_sms", '{"text": "+49301234567"}', index=1, choice=1)
    assert marked(chat, [TextDelta(text=EVE), *SEND, *phone]) == [
        *FOUND,
        "phone in send_sms.text from read_mail",
    ]


@pytest.mark.parametrize("arguments", ["", "{", '{"to": "', "[]", '"text"', "7", "null", '{"to": ' * 200])
def test_arguments_that_are_no_json_are_no_error(arguments: str) -> None:
    chat = chat_of(message("assistant", CALLED), result(Text(text=EVE)))
    assert marked(chat, call("send_mail", arguments)) == []


def test_calls_and_their_arguments_are_bounded() -> None:
    chat = chat_of(message("assistant", CALLED), result(Text(text=EVE)))
    many = [event for index in range(MAX_CALLS) for event in call("get_page", "{}", index=index)]
    assert marked(chat, many + call("send_mail", json.dumps({"to": EVE}), index=MAX_CALLS)) == []
    long = [
        ToolCallStarted(index=1, id="c", name="write"),
        ToolCallDelta(index=1, arguments="x" * MAX_ARGUMENT_CHARACTERS),
    ]
    assert marked(chat, [*long, *SEND]) == []
    assert marked(chat, [*SEND, *long]) == FOUND
    # A delta of a call that never began.
    assert marked(chat, [ToolCallDelta(index=9, arguments="{}"), *SEND]) == FOUND


def test_names_are_cut() -> None:
    chat = chat_of(result(Text(text=EVE), name="r" * 500))
    [pattern] = marked(chat, call("send_" + "x" * 500, json.dumps({"to": EVE})))
    assert pattern == f"email in {('send_' + 'x' * 500)[:64]}.to from {'r' * 64}"


def test_the_value_is_in_no_record() -> None:
    guard = guard_of()
    marked(chat_of(message("assistant", CALLED), result(Text(text=EVE))), SEND, guard)
    [draft] = guard.violations
    assert (draft.matched_content, draft.action_taken, len(draft.content_hash)) == ("", "warned", 64)
    assert guard.marked_arguments == [{"tool": "send_mail", "argument": "to", "kind": "email", "source": "read_mail"}]


def test_only_a_conversation_with_results_is_watched() -> None:
    guard, off = guard_of(), RequestGuard(compiled(), "retain")
    asked = message("user", Text(text="hello"))
    assert is_checked(guard, chat_of(asked, message("assistant", CALLED), result(Text(text="x"))))
    assert not is_checked(guard, chat_of(asked, message("assistant", CALLED)))
    assert not is_checked(off, chat_of(result(Text(text="x"))))


def test_a_defect_of_a_rule_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(tool_call_watch.engine, "check_calls", fail)
    assert marked(chat_of(message("assistant", CALLED), result(Text(text=EVE))), SEND) == []
