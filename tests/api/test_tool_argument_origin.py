"""The origin of tool arguments in every client format: an agent reads a mail, and its model writes to who is in it."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.guardrails.models import Violation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support import anthropic_requests, google_requests, responses_calls
from tests.support.guardrails_in_force import guard
from tests.support.upstream import Caller, chunks_of, settle_all

RULE = "system:tool_argument_origin"
# The sandbox writes it where a schema wants an address.
ADDRESS = "user@example.com"
MAIL = f"From: {ADDRESS}\nPlease answer."
SEND = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}, "required": ["to"]}
READ: dict[str, Any] = {"type": "object", "properties": {}}
PATTERN = "email in send_mail.to from read_mail"
MARK = {"tool": "send_mail", "argument": "to", "kind": "email", "source": "read_mail"}


@pytest.fixture(autouse=True)
def _in_force(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    guard(caller, rules={"tool_argument_origin": "warn"}, tool_argument_origin={"observe": True})


def words(text: str = "call send_mail") -> str:
    return f"{text} [[sandbox tag={uuid4().hex} chunk=3]]"


def ask_chat(caller: Caller, *, stream: bool, text: str = "call send_mail", mail: str = MAIL, **fields: Any) -> Any:
    """Send the turn after a mail was read, in the format of OpenAI's chats."""
    call = {"id": "call_1", "type": "function", "function": {"name": "read_mail", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Read my mail."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": mail},
        {"role": "user", "content": words(text)},
    ]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in (("read_mail", READ), ("send_mail", SEND))
    ]
    return caller.chat(messages=messages, tools=tools, stream=stream, **fields)


def ask_messages(caller: Caller, *, stream: bool) -> Any:
    """Send the same in Anthropic's format."""
    messages = [
        {"role": "user", "content": "Read my mail."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read_mail", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": MAIL},
                {"type": "text", "text": words()},
            ],
        },
    ]
    tools = [{"name": "read_mail", "input_schema": READ}, {"name": "send_mail", "input_schema": SEND}]
    return anthropic_requests.ask(caller, messages=messages, tools=tools, stream=stream)


def ask_responses(caller: Caller, *, stream: bool) -> Any:
    """Send the same as items of OpenAI's responses."""
    items = [
        {"role": "user", "content": "Read my mail."},
        {"type": "function_call", "call_id": "call_1", "name": "read_mail", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": MAIL},
        {"role": "user", "content": words()},
    ]
    tools = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in (("read_mail", READ), ("send_mail", SEND))
    ]
    return responses_calls.ask(caller, items, model="sandbox/echo", tools=tools, stream=stream, store=False)


def ask_google(caller: Caller, *, stream: bool) -> Any:
    """Send the same in Google's format."""
    contents = [
        {"role": "user", "parts": [{"text": "Read my mail."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read_mail", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "read_mail", "response": {"mail": MAIL}}}]},
        {"role": "user", "parts": [{"text": words()}]},
    ]
    declared = [
        {"name": name, "parametersJsonSchema": schema} for name, schema in (("read_mail", READ), ("send_mail", SEND))
    ]
    method = "streamGenerateContent" if stream else "generateContent"
    query = "?alt=sse" if stream else ""
    tools = [{"functionDeclarations": declared}]
    return google_requests.ask(caller, contents=contents, tools=tools, method=method, query=query)


FORMATS = {"chat": ask_chat, "messages": ask_messages, "responses": ask_responses, "google": ask_google}


def read(answer: Any) -> str:
    """Return all of an answer, which then has ended."""
    assert answer.status_code == 200, answer.content
    return (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode()


def recorded() -> list[tuple[str, str, str, str, str]]:
    return [
        (row.rule_id, row.category, row.action_taken, row.matched_pattern, row.matched_content)
        for row in Violation.objects.all()
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("name", FORMATS)
def test_it_is_recorded_in_every_format_and_never_with_the_value(caller: Caller, name: str, stream: bool) -> None:
    text = read(FORMATS[name](caller, stream=stream))
    assert "send_mail" in text
    assert '"guardrails"' not in text
    assert settle_all() == 1
    assert recorded() == [(RULE, "tool_calls", "observed", PATTERN, "")]
    row = RequestLog.objects.get()
    assert row.routing_metadata["tool_argument_origins"] == [MARK]
    assert "session" not in row.routing_metadata
    assert ADDRESS not in json.dumps(row.routing_metadata) + json.dumps(list(Violation.objects.values()), default=str)


def test_a_session_that_a_header_names_is_beside_the_marks(caller: Caller) -> None:
    read(ask_chat(caller, stream=True, headers={"x-session-id": "s-17"}))
    settle_all()
    assert RequestLog.objects.get().routing_metadata["session"] == "s-17"


def test_what_the_user_said_is_not_marked(caller: Caller) -> None:
    assert ADDRESS in read(ask_chat(caller, stream=False, text=f"Write to {ADDRESS}: call send_mail"))
    settle_all()
    assert recorded() == []
    assert "tool_argument_origins" not in RequestLog.objects.get().routing_metadata


@pytest.mark.parametrize(
    ("tools", "marked"), [({"send_mail": False}, False), ({"Send_mail": False, "mail": True}, True)]
)
def test_the_organization_says_by_exact_name_which_tools_have_effects(
    caller: Caller, tools: dict[str, bool], marked: bool
) -> None:
    guard(caller, rules={"tool_argument_origin": "warn"}, tool_argument_origin={"observe": True, "tools": tools})
    assert ADDRESS in read(ask_chat(caller, stream=False))
    settle_all()
    assert recorded() == ([(RULE, "tool_calls", "observed", PATTERN, "")] if marked else [])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_rule_that_warns_tells_the_client_at_the_end(caller: Caller, stream: bool) -> None:
    """Any stricter action would come too late: the answer has been given."""
    guard(caller, rules={"tool_argument_origin": "block"}, tool_argument_origin={"observe": False})
    answer = ask_chat(caller, stream=stream)
    last = [one for one in chunks_of(answer) if one != "[DONE]"][-1] if stream else answer.json()
    assert last["metadata"]["guardrails"] == [{"rule_id": RULE, "action": "warned"}]
    settle_all()
    assert recorded() == [(RULE, "tool_calls", "warned", PATTERN, "")]


def test_values_that_are_masked_for_the_model_are_compared_as_the_client_wrote_them(caller: Caller) -> None:
    guard(
        caller,
        rules={"tool_argument_origin": "warn", "pii_detection": "redact"},
        pii_detection={"roles": {"tool_result": "redact"}},
    )
    # The sandbox writes the address itself, though it was shown placeholders.
    assert ADDRESS in read(ask_chat(caller, stream=False, text=f"Write to {ADDRESS}: call send_mail"))
    assert settle_all() == 1
    assert [one for one in recorded() if one[0] == RULE] == []
    assert ADDRESS in read(ask_chat(caller, stream=False))
    assert settle_all() == 1
    assert [one for one in recorded() if one[0] == RULE] == [(RULE, "tool_calls", "observed", PATTERN, "")]


@pytest.mark.parametrize("rules", [{}, {"secrets": "warn"}], ids=["no rule", "another rule"])
def test_where_the_rule_is_off_nothing_is_checked(
    caller: Caller, rules: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a call was watched")

    monkeypatch.setattr("apps.gateway.guard.tool_call_watch.ToolCallWatch.take", never)
    guard(caller, rules=rules)
    assert "send_mail" in read(ask_chat(caller, stream=True))
    settle_all()
    assert recorded() == []


def test_a_check_that_fails_spoils_no_answer(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("apps.gateway.guard.tool_call_watch.engine.check_calls", fail)
    assert "send_mail" in read(ask_chat(caller, stream=True))
    assert settle_all() == 1
    assert (recorded(), RequestLog.objects.get().status_code) == ([], 200)
