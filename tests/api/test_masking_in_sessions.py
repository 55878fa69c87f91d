"""Masked values in an agent's session (section 2.8): it reads mails and sends one, turn by turn, as agents send it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import Provider
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from apps.sandbox.formats.anthropic_messages import SIGNATURE
from tests.support import anthropic_requests, responses_calls
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.guardrails_in_force import forbid, guard, waiting, written
from tests.support.upstream import Caller, chunks_of, settle_all

ANN, BEN = "ann@zanzibar-post.com", "ben@zanzibar-post.com"
ACCOUNT = 4440001234
READ = {"type": "object", "properties": {"account": {"type": "integer"}}}
SEND = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "account": {"type": "integer"}, "copies": {"type": "integer"}},
}
MAILS = json.dumps([{"from": ANN, "text": f"Send the minutes to {BEN}", "account": ACCOUNT}])
ASKED = {"account": ACCOUNT}
SENT = {"to": BEN, "account": ACCOUNT, "copies": 2}


@pytest.fixture(autouse=True)
def _in_force(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    guard(caller, rules={"pii_detection": "redact"}, pii_detection={"roles": {"tool_result": "redact"}})
    config = {"type": "custom_regex", "pattern": r"\b444\d{7}\b"}
    forbid(caller, name="Accounts", type="custom_regex", config=config, action="redact")


def requests_of_turns(tag: str) -> list[str]:
    """Return the user's words in three turns; those in brackets script the sandbox."""
    mark = f"[[sandbox tag={tag} chunk=3]]"
    return [
        f"read_mails({json.dumps(ASKED)}) {mark}",
        f"send_mail({json.dumps(SENT)}) {mark}",
        f"Did {BEN} get it, {ANN}? [[sandbox tag={tag} verbatim chunk=3]]",
    ]


def assert_provider_saw_no_value(caller: Caller, tag: str) -> None:
    seen = json.dumps(caller.sent(tag))
    assert ("zanzibar" in seen, str(ACCOUNT) in seen) == (False, False)
    assert settle_all() == 3
    rows = json.dumps(list(RequestLog.objects.values()), default=str)
    kept = rows + waiting() + written().replace("***om", "")
    assert ("zanzibar" in kept, str(ACCOUNT) in rows) == (False, False)


def assert_each_turn_begins_with_the_turn_before(turns: list[list[Any]]) -> None:
    """Prompt caches of providers hold only where the beginning of a request stays the same, byte by byte."""
    assert len(turns) == 3
    for before, after in pairwise(turns):
        assert json.dumps(after[: len(before)]) == json.dumps(before)


def test_claude_code_reads_mails_and_sends_one(caller: Caller) -> None:
    anthropic_requests.speak("anthropic")
    tag = uuid4().hex
    first, second, third = requests_of_turns(tag)
    fields: dict[str, Any] = {
        "path": "/v1/messages?beta=true",
        "model": "sandbox/reasoner",
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "read_mails", "input_schema": READ}, {"name": "send_mail", "input_schema": SEND}],
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "metadata": {"user_id": "user_1_account__session_5f0c"},
        "max_tokens": 4_096,
        "stream": True,
    }
    messages: list[dict[str, Any]] = []

    def turn(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send the conversation with a further turn; return the content of the answer, which is a part of it then."""
        messages.append({"role": "user", "content": content})
        answer = anthropic_requests.ask(caller, messages=messages, **fields)
        assert answer.status_code == 200, answer.content
        events = chunks_of(answer)
        assert_in_order(events)
        said: list[dict[str, Any]] = message_of(events)["content"]
        messages.append({"role": "assistant", "content": said})
        return said

    thought, read = turn([{"type": "text", "text": first}])
    assert (thought["type"], thought["signature"], thought["thinking"] != "") == ("thinking", SIGNATURE, True)
    assert (read["name"], read["input"]) == ("read_mails", ASKED)
    result = {"type": "tool_result", "tool_use_id": read["id"], "content": MAILS}
    *_, send = turn([result, {"type": "text", "text": second}])
    assert (send["name"], send["input"]) == ("send_mail", SENT)
    result = {"type": "tool_result", "tool_use_id": send["id"], "content": f"sent to {BEN}"}
    *_, last = turn([result, {"type": "text", "text": third}])
    assert last["text"] == f"Did {BEN} get it, {ANN}?"

    turns = [one["body"]["messages"] for one in caller.sent(tag)]
    assert_each_turn_begins_with_the_turn_before(turns)
    # Numbers follow the first appearance: Ann's in the mails, then Ben's.
    asked, answered, mails = turns[2][:3]
    assert text_of(asked["content"]).startswith('read_mails({"account": "[PATTERN_1]"})')
    assert answered["content"][0] == {"type": "thinking", "thinking": thought["thinking"], "signature": SIGNATURE}
    assert answered["content"][1]["input"] == {"account": "[PATTERN_1]"}
    assert json.loads(text_of(mails["content"][0]["content"])) == [
        {"from": "[EMAIL_1]", "text": "Send the minutes to [EMAIL_2]", "account": "[PATTERN_1]"}
    ]
    [called] = [one for one in turns[2][3]["content"] if one["type"] == "tool_use"]
    assert called["input"] == {"to": "[EMAIL_2]", "account": "[PATTERN_1]", "copies": 2}
    assert_provider_saw_no_value(caller, tag)


def test_signed_thinking_is_not_altered_whatever_it_says(caller: Caller) -> None:
    anthropic_requests.speak("anthropic")
    tag = uuid4().hex
    thought = {"type": "thinking", "thinking": f"[EMAIL_1] is not {ANN}", "signature": SIGNATURE}
    call = {"type": "tool_use", "id": "toolu_1", "name": "send_mail", "input": {"to": BEN}}
    messages = [
        {"role": "user", "content": f"Write to {BEN}"},
        {"role": "assistant", "content": [thought, call]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"sent to {BEN}"},
                {"type": "text", "text": f"[[sandbox tag={tag}]]"},
            ],
        },
    ]
    answer = anthropic_requests.ask(
        caller,
        model="sandbox/reasoner",
        messages=messages,
        tools=[{"name": "send_mail", "input_schema": SEND}],
        thinking={"type": "enabled", "budget_tokens": 1_024},
        max_tokens=4_096,
    )
    assert answer.status_code == 200, answer.content
    [sent] = caller.sent(tag)
    shown = sent["body"]["messages"][1]["content"]
    assert shown[0] == thought
    # The placeholder in it still means the value that it meant.
    assert shown[1]["input"] == {"to": "[EMAIL_1]"}


@pytest.mark.parametrize("upstream", ["openai", "responses"])
def test_codex_reads_mails_and_sends_one(caller: Caller, upstream: str) -> None:
    Provider.objects.filter(pk="sandbox").update(dialect=upstream)
    generation.bump(generation.CATALOG)
    tag = uuid4().hex
    first, second, third = requests_of_turns(tag)
    fields: dict[str, Any] = {
        "model": "sandbox/echo",
        "instructions": "You are an agent.",
        "tools": [
            {"type": "function", "name": "read_mails", "parameters": READ, "strict": False},
            {"type": "function", "name": "send_mail", "parameters": SEND, "strict": False},
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "session-5f0c",
        "stream": True,
    }
    items: list[dict[str, Any]] = []

    def turn(*added: dict[str, Any]) -> list[dict[str, Any]]:
        """Send the conversation with further items; return those of the answer, which are a part of it then."""
        items.extend(added)
        events = responses_calls.events_of(responses_calls.ask(caller, items, **fields))
        output: list[dict[str, Any]] = events[-1]["response"]["output"]
        # The deltas of a call add up to the arguments of its end.
        pieces = [one["delta"] for one in events if one["type"] == "response.function_call_arguments.delta"]
        calls = [one["arguments"] for one in output if one["type"] == "function_call"]
        assert "".join(pieces) == "".join(calls)
        items.extend(output)
        return output

    def said(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    *_, read = turn(said(first))
    assert (read["name"], json.loads(read["arguments"])) == ("read_mails", ASKED)
    result = {"type": "function_call_output", "call_id": read["call_id"], "output": MAILS}
    *_, send = turn(result, said(second))
    assert (send["name"], json.loads(send["arguments"])) == ("send_mail", SENT)
    result = {"type": "function_call_output", "call_id": send["call_id"], "output": f"sent to {BEN}"}
    *_, last = turn(result, said(third))
    assert last["content"][0]["text"] == f"Did {BEN} get it, {ANN}?"

    name = "messages" if upstream == "openai" else "input"
    turns = [one["body"][name] for one in caller.sent(tag)]
    assert_each_turn_begins_with_the_turn_before(turns)
    masked = json.dumps(turns[2])
    sent = {"to": "[EMAIL_2]", "account": "[PATTERN_1]", "copies": 2}
    assert sent in [json.loads(one) for one in arguments_in(turns[2])]
    assert '\\"from\\": \\"[EMAIL_1]\\"' in masked or '\\"from\\":\\"[EMAIL_1]\\"' in masked
    assert_provider_saw_no_value(caller, tag)


def text_of(content: Any) -> str:
    """Return the text of a content, which is one or a list of blocks."""
    return content if isinstance(content, str) else str(content[0]["text"])


def arguments_in(items: list[dict[str, Any]]) -> list[str]:
    """Return the arguments of the calls in a provider's request, in either of OpenAI's formats."""
    chats = [call["function"]["arguments"] for one in items for call in one.get("tool_calls") or ()]
    return chats + [one["arguments"] for one in items if one.get("type") == "function_call"]
