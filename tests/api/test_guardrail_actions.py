"""Guardrail actions: `block` is a 400, `redact` masks, `warn` records, `allow` overrides other rules (section 2.10)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.billing import reservations
from apps.billing.worker_leases import worker_name
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from apps.sandbox.formats.anthropic_messages import SIGNATURE
from tests.support.anthropic_requests import ask, speak
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.image_requests import PNG, edit, edit_form, generate
from tests.support.upstream import Caller, chunks_of, settle_all

TERM = "project zanzibar"
SECRET = "AKIAQ3EGR7TNX5WD2KLM"


@pytest.fixture(autouse=True)
def _everything_is_kept(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")


def asked(tag: str, text: str = f"tell me of {TERM}") -> str:
    return f"{text} [[sandbox tag={tag}]]"


def log_row() -> RequestLog:
    return RequestLog.objects.get()


# --- block


@pytest.mark.parametrize("stream", [False, True])
def test_block_rejects_a_chat_with_a_400_in_openais_shape(caller: Caller, stream: bool) -> None:
    guard(caller)
    rule = forbid(caller, TERM, name="Secret projects")
    tag = uuid4().hex
    answer = caller.chat(asked(tag), stream=stream)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "guardrail_blocked", "messages")
    assert "'Secret projects'" in error["message"]
    assert "in messages[0].content:" in error["message"]
    assert "zanzibar" not in answer.content.decode()
    assert caller.sent(tag) == []
    assert settle_all() == 1
    row = log_row()
    assert (row.status_code, row.unified_finish_reason, row.has_error, row.cost) == (400, "client_error", True, 0)
    assert (row.error_details["code"], row.messages, row.requested_model) == ("guardrail_blocked", None, "sandbox/echo")
    assert violations() == [(str(rule.id), "blocked", TERM, TERM)]


def test_block_rejects_a_message_with_a_400_in_anthropics_shape(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM)
    answer = ask(caller, f"tell me of {TERM}")
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"].startswith("Blocked by the guardrail 'Terms' in messages[0]")
    assert settle_all() == 1


def send_form_of(caller: Caller, prompt: str) -> Any:
    return edit_form(caller, ("image", PNG), prompt=prompt)


@pytest.mark.parametrize("request_pictures", [generate, edit, send_form_of])
def test_block_rejects_what_pictures_are_asked_for(caller: Caller, request_pictures: Any) -> None:
    guard(caller)
    forbid(caller, TERM)
    answer = request_pictures(caller, prompt=f"a map of {TERM}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "guardrail_blocked")
    assert settle_all() == 1
    assert log_row().cost == 0


def test_a_blocked_request_holds_no_money_and_counts_against_the_rate(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(requests_per_minute=2)
    guard(caller)
    forbid(caller, TERM)
    answers = [caller.chat(f"tell me of {TERM}", max_tokens=1000) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [400, 400, 429]
    assert settle_all() == 2
    assert reservations.notes_of(worker_name(), 0) == {}
    assert valkey().hget(f"balance:organization:{caller.organization_id}", "held") in {None, "0"}
    assert Organization.objects.get(pk=caller.organization_id).credits == Decimal(100)
    assert RequestLog.objects.count() == 2


# --- redact


def test_redact_masks_and_goes_on(caller: Caller) -> None:
    guard(caller)
    rule = forbid(caller, TERM, action="redact")
    tag = uuid4().hex
    answer = caller.chat(asked(tag))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["guardrails"] == [{"rule_id": str(rule.id), "action": "redacted"}]
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: tell me of {TERM}"
    [sent] = caller.sent(tag)
    assert sent["body"]["messages"] == [{"role": "user", "content": f"tell me of [TERM_1] [[sandbox tag={tag}]]"}]
    assert settle_all() == 1
    assert "zanzibar" not in json.dumps(log_row().messages)
    assert violations() == [(str(rule.id), "redacted", TERM, TERM)]


def test_where_nothing_is_masked_the_clients_own_words_go_on(caller: Caller) -> None:
    guard(caller, rules={"secrets": "redact", "pii_detection": "redact"})
    tag = uuid4().hex
    assert caller.chat(asked(tag, "hello"), novelty={"a": 1.50}).status_code == 200
    [sent] = caller.sent(tag)
    assert sent["body"]["novelty"] == {"a": 1.5}


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_a_tools_name_is_not_masked_but_blocked(caller: Caller, form: str) -> None:
    guard(caller)
    forbid(caller, "zanzibar", action="redact")
    schema = {"type": "object", "properties": {}}
    if form == "openai":
        tool = {"type": "function", "function": {"name": "zanzibar_tool", "parameters": schema}}
        answer = caller.chat("hi", tools=[tool])
    else:
        answer = ask(caller, "hi", tools=[{"name": "zanzibar_tool", "input_schema": schema}])
    assert answer.status_code == 400
    place = "tools[0].function.name" if form == "openai" else "tools[0].name"
    assert f"in {place} (it cannot be masked here)" in answer.content.decode()
    settle_all()
    assert log_row().tools is None
    assert [taken for _, taken, _, _ in violations()] == ["blocked"]


@pytest.mark.parametrize("action", ["redact", "neutralize"])
def test_signed_thinking_is_never_altered(caller: Caller, action: str) -> None:
    speak("anthropic")
    guard(caller)
    rule = forbid(caller, TERM, action=action)
    tag = uuid4().hex
    thinking = {"type": "thinking", "thinking": f"about {TERM}", "signature": SIGNATURE}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "well"}]},
        {"role": "user", "content": asked(tag, "go on")},
    ]
    answer = ask(caller, messages=history)
    assert answer.status_code == 200, answer.content
    [sent] = caller.sent(tag)
    assert sent["body"]["messages"][1]["content"][0] == thinking
    settle_all()
    assert violations() == [(str(rule.id), "warned", TERM, TERM)]


# --- warn, observe, allow


def test_warn_records_and_lets_pass(caller: Caller) -> None:
    guard(caller)
    rule = forbid(caller, TERM, action="warn")
    answer = caller.chat(f"tell me of {TERM}")
    assert answer.json()["choices"][0]["message"]["content"] == f"You said: tell me of {TERM}"
    assert answer.json()["metadata"]["guardrails"] == [{"rule_id": str(rule.id), "action": "warned"}]
    settle_all()
    assert violations() == [(str(rule.id), "warned", TERM, TERM)]


def test_a_rule_that_is_observed_does_nothing_and_tells_the_client_nothing(caller: Caller) -> None:
    guard(caller)
    rule = forbid(caller, TERM, observe_only=True)
    answer = caller.chat(f"tell me of {TERM}")
    assert (answer.status_code, "guardrails" in answer.json()["metadata"]) == (200, False)
    settle_all()
    assert violations() == [(str(rule.id), "observed", TERM, TERM)]


def test_allow_overrides_rules_of_lower_priority(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM)
    forbid(caller, "tell me of", action="allow", priority=200)
    assert caller.chat(f"tell me of {TERM}").status_code == 200
    settle_all()
    assert violations() == []


def test_a_stream_tells_what_was_masked(caller: Caller) -> None:
    guard(caller)
    rule = forbid(caller, TERM, action="redact")
    chunks = chunks_of(caller.chat(f"tell me of {TERM}", stream=True))
    told = [chunk["metadata"]["guardrails"] for chunk in chunks[:-1] if "guardrails" in chunk.get("metadata", {})]
    assert told == [[{"rule_id": str(rule.id), "action": "redacted"}]]
    assert UUID(told[0][0]["rule_id"]) == rule.id
