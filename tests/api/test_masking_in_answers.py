"""Masked values in answers (section 2.8): models see placeholders, clients of every format get their values back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from apps.guardrails.models import Violation
from apps.kernel.valkey.redis import cache_client
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support import anthropic_requests, google_requests, responses_calls
from tests.support.anthropic_requests import speak
from tests.support.anthropic_stream import message_of
from tests.support.guardrails_in_force import forbid, guard, waiting, written
from tests.support.upstream import Caller, chunks_of, settle_all

ANN, BEN = "ann@zanzibar-post.com", "ben@zanzibar-post.com"
ACCOUNT = 4440001234
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "account": {}}}
# The text of an answer, and the arguments of its call.
Answer = tuple[str, Any]


@pytest.fixture(autouse=True)
def _in_force(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    guard(caller, rules={"pii_detection": "redact"})
    config = {"type": "custom_regex", "pattern": r"\b444\d{7}\b"}
    forbid(caller, name="Accounts", type="custom_regex", config=config, action="redact")


def chat_completion(caller: Caller, text: str, stream: bool) -> Answer:
    tool = {"type": "function", "function": {"name": "send_mail", "parameters": SCHEMA}}
    answer = caller.chat(text, tools=[tool], stream=stream)
    assert answer.status_code == 200
    if not stream:
        message = answer.json()["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        return message["content"] or "", json.loads(calls[0]["function"]["arguments"]) if calls else None
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(answer)[:-1] if chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    return "".join(delta.get("content") or "" for delta in deltas), json.loads(arguments) if calls else None


def message(caller: Caller, text: str, stream: bool) -> Answer:
    tool = {"name": "send_mail", "input_schema": SCHEMA}
    answer = anthropic_requests.ask(caller, text, tools=[tool], stream=stream)
    assert answer.status_code == 200
    whole = message_of(chunks_of(answer)) if stream else answer.json()
    calls = [block["input"] for block in whole["content"] if block["type"] == "tool_use"]
    said = "".join(block["text"] for block in whole["content"] if block["type"] == "text")
    return said, calls[0] if calls else None


def response(caller: Caller, text: str, stream: bool) -> Answer:
    tool = {"type": "function", "name": "send_mail", "parameters": SCHEMA, "strict": False}
    whole = responses_calls.answer(caller, text, stream=stream, tools=[tool], model="sandbox/echo")
    calls = [json.loads(item["arguments"]) for item in whole["output"] if item["type"] == "function_call"]
    return responses_calls.text_of(whole), calls[0] if calls else None


def content(caller: Caller, text: str, stream: bool) -> Answer:
    tools = [{"functionDeclarations": [{"name": "send_mail", "parametersJsonSchema": SCHEMA}]}]
    method = "streamGenerateContent" if stream else "generateContent"
    answer = google_requests.ask(caller, text, method=method, tools=tools)
    assert answer.status_code == 200
    chunks = google_requests.chunks_of(answer) if stream else [answer.json()]
    parts = [part for chunk in chunks for part in chunk["candidates"][0].get("content", {}).get("parts", ())]
    calls = [part["functionCall"]["args"] for part in parts if "functionCall" in part]
    return "".join(part.get("text", "") for part in parts), calls[0] if calls else None


EVERY_FORMAT = pytest.mark.parametrize("ask", [chat_completion, message, response, content])
Ask = Callable[[Caller, str, bool], Answer]


@EVERY_FORMAT
@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize(("stream", "chunk"), [(False, 9), (True, 1), (True, 4), (True, 1000)])
def test_values_come_back_in_texts(caller: Caller, ask: Ask, upstream: str, stream: bool, chunk: int) -> None:
    speak(upstream)
    tag = uuid4().hex
    text = f"from {ANN} to {BEN} and {ANN}; nothing is [here]"
    assert ask(caller, f"{text} [[sandbox tag={tag} verbatim chunk={chunk}]]", stream) == (text, None)
    [sent] = caller.sent(tag)
    assert "from [EMAIL_1] to [EMAIL_2] and [EMAIL_1]; nothing is [here]" in json.dumps(sent["body"])
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert row.content == "from [EMAIL_1] to [EMAIL_2] and [EMAIL_1]; nothing is [here]"
    assert "zanzibar" not in json.dumps(sent) + waiting() + written().replace("***om", "")
    assert Violation.objects.count() == 2


@EVERY_FORMAT
@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize(("stream", "chunk"), [(False, 9), (True, 1), (True, 4), (True, 1000)])
def test_tools_get_values_with_their_types(caller: Caller, ask: Ask, upstream: str, stream: bool, chunk: int) -> None:
    speak(upstream)
    tag = uuid4().hex
    asked = {"to": ANN, "account": ACCOUNT, "note": [f"{BEN}, {ANN}", {"n": ACCOUNT}], "count": 2}
    text = f"send_mail({json.dumps(asked)}) [[sandbox tag={tag} chunk={chunk}]]"
    assert ask(caller, text, stream)[1] == asked
    [sent] = caller.sent(tag)
    notes = ["[EMAIL_2], [EMAIL_1]", {"n": "[PATTERN_1]"}]
    masked = {"to": "[EMAIL_1]", "account": "[PATTERN_1]", "note": notes, "count": 2}
    assert json.dumps(f"send_mail({json.dumps(masked)})")[1:-1] in json.dumps(sent["body"])
    assert settle_all() == 1
    [asked_of] = RequestLog.objects.get().messages
    assert json.dumps(f"send_mail({json.dumps(masked)})")[1:-1] in json.dumps(asked_of)
    row = json.dumps(RequestLog.objects.values().get(), default=str)
    assert (str(ACCOUNT) in json.dumps(sent) + row, "zanzibar" in json.dumps(sent) + row) == (False, False)


def test_a_conversation_is_the_same_for_the_provider_in_every_turn(caller: Caller) -> None:
    guard(caller, rules={"pii_detection": "redact"}, pii_detection={"roles": {"tool_result": "redact"}})
    tag = uuid4().hex
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"to": BEN, "n": ACCOUNT})},
    }
    turns = [
        {"role": "user", "content": f"write to {ANN}"},
        {"role": "assistant", "content": f"To {ANN}, yes.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"sent": BEN, "n": ACCOUNT})},
        {"role": "user", "content": f"and to cat@zanzibar-post.com [[sandbox tag={tag}]]"},
    ]
    assert caller.chat(messages=[*turns[:1], {"role": "user", "content": f"[[sandbox tag={tag}]]"}]).status_code == 200
    assert caller.chat(messages=turns).status_code == 200
    # Numbers do not depend on what the store has.
    for key in cache_client().scan_iter("*placeholders:*"):
        cache_client().delete(key)
    assert caller.chat(messages=turns).status_code == 200
    first, second, third = (one["body"]["messages"] for one in caller.sent(tag))
    assert first[0] == second[0] == {"role": "user", "content": "write to [EMAIL_1]"}
    assert second == third
    assert second[1]["content"] == "To [EMAIL_1], yes."
    arguments = second[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"to": "[EMAIL_2]", "n": "[PATTERN_1]"}
    assert json.loads(second[2]["content"]) == {"sent": "[EMAIL_2]", "n": "[PATTERN_1]"}
    assert second[3]["content"].startswith("and to [EMAIL_3]")


def test_a_session_keeps_its_numbers_when_its_beginning_is_dropped(caller: Caller) -> None:
    tag = uuid4().hex
    session = {"x-session-id": "s1"}
    assert caller.chat(f"{ANN} and {BEN}", headers=session).status_code == 200
    answer = caller.chat(f"ask {BEN} [[sandbox tag={tag}]]", headers=session)
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: ask {BEN}"
    [sent] = caller.sent(tag)
    assert sent["body"]["messages"][0]["content"].startswith("ask [EMAIL_2]")


@pytest.mark.parametrize("stream", [False, True])
def test_a_kept_answer_gets_the_values_of_who_asks(caller: Caller, stream: bool) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    tag = uuid4().hex
    for number, address in enumerate((ANN, BEN)):
        answer = caller.chat(f"hello {address} [[sandbox tag={tag} chunk=3]]", stream=stream)
        assert answer["x-gateway-cache"] == ("hit" if number else "miss")
        said = (
            "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks_of(answer)[:-1])
            if stream
            else answer.json()["choices"][0]["message"]["content"]
        )
        assert said == f"You said: hello {address}"
    assert len(caller.sent(tag)) == 1


def test_a_rule_without_restore_masks_for_good(caller: Caller) -> None:
    guard(caller, rules={"pii_detection": "redact"}, pii_detection={"restore": False})
    answer = caller.chat(f"write to {ANN} and {BEN}")
    masked = "You said: write to [EMAIL_REDACTED] and [EMAIL_REDACTED]"
    assert answer.json()["choices"][0]["message"]["content"] == masked
    assert list(cache_client().scan_iter("*placeholders:*")) == []


def test_rules_on_answers_see_placeholders(caller: Caller) -> None:
    guard(caller, rules={"pii_detection": "redact"}, scan_output=True)
    answer = caller.chat(f"hello {ANN} [[sandbox verbatim]]", stream=True)
    said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks_of(answer)[:-1])
    assert said == f"hello {ANN}"
    assert settle_all() == 1
    assert [row.action_taken for row in Violation.objects.all()] == ["redacted"]


def test_where_nothing_is_masked_the_store_is_not_asked(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr("apps.gateway.guard.placeholders.ConversationNumbers.__init__", never)
    assert caller.chat("hello [EMAIL_1]").json()["choices"][0]["message"]["content"] == "You said: hello [EMAIL_1]"
