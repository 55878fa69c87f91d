"""The configuration's switches and settings, and the requests that they apply to (section 2.8)."""

from __future__ import annotations

import json
from threading import get_ident
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.guardrails.configuration.compiled_cache import warm_up_rules_once
from apps.guardrails.models import GuardrailConfig
from apps.guardrails.scanning import engine
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.anthropic_requests import ask, speak
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.upstream import Caller, nothing_happened, settle_all

TERM = "project zanzibar"
SECRET = "AKIAQ3EGR7TNX5WD2KLM"


@pytest.fixture(autouse=True)
def _everything_is_kept(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")


def asked(tag: str, text: str = f"tell me of {TERM}") -> str:
    return f"{text} [[sandbox tag={tag}]]"


def test_files_are_looked_at_as_files(caller: Caller) -> None:
    guard(caller, rules={"file_types": "block"})
    script = {"type": "file", "file": {"file_data": "data:image/png;base64,IyEvYmluL3NoCg==", "filename": "a.png"}}
    answer = caller.chat([{"type": "text", "text": "see"}, script])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "guardrail_blocked")
    assert "messages[0].content[1]" in answer.json()["error"]["message"]
    settle_all()
    assert [(rule, taken) for rule, taken, _, _ in violations()] == [("system:file_types", "blocked")]


@pytest.mark.parametrize("why", ["no configuration", "switched off", "another plan", "no rule"])
def test_without_rules_in_force_no_guardrail_runs(caller: Caller, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why != "no configuration":
        guard(caller, rules={"secrets": "block"} if why != "no rule" else {}, enabled=why != "switched off")
    if why == "another plan":
        Organization.objects.filter(pk=caller.organization_id).update(plan="pro")
        policy.forget_all()
    # Before a process compiles its first rules, it scans samples.
    warm_up_rules_once()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("guardrails ran")

    for name in (
        "apps.gateway.guard.request_guard.RequestGuard",
        "apps.gateway.pipeline.RequestGuard",
        "apps.guardrails.scanning.engine.screen",
    ):
        monkeypatch.setattr(name, never)
    monkeypatch.setattr("apps.gateway.run.ResponseGuard", never)
    answer = caller.chat(f"my key {SECRET}")
    assert (answer.status_code, "guardrails" in answer.json()["metadata"]) == (200, False)


def test_a_change_holds_for_the_next_request(caller: Caller, django_capture_on_commit_callbacks: Any) -> None:
    row = guard(caller)
    forbid(caller, TERM)
    assert caller.chat(f"tell me of {TERM}").status_code == 400
    with django_capture_on_commit_callbacks(execute=True):
        row.enabled = False
        row.save()
    assert caller.chat(f"tell me of {TERM}").status_code == 200


def test_a_custom_rule_is_in_force_without_a_configuration(caller: Caller) -> None:
    rule = forbid(caller, TERM)
    assert not GuardrailConfig.objects.exists()
    answer = caller.chat(f"tell me of {TERM}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "guardrail_blocked")
    # System rules are not: no one has chosen them.
    assert caller.chat(f"my key {SECRET}").status_code == 200
    settle_all()
    assert [(found, taken) for found, taken, _, _ in violations()] == [(str(rule.id), "blocked")]


def test_counting_tokens_is_held_against_the_rules_as_well(caller: Caller) -> None:
    speak("anthropic")
    guard(caller)
    forbid(caller, TERM)
    tag = uuid4().hex
    path = "/v1/messages/count_tokens"
    answer = ask(caller, asked(tag), path=path, max_tokens=None)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert caller.sent(tag) == []
    forbid(caller, "secret plan", action="redact")
    assert ask(caller, asked(tag, "a secret plan"), path=path, max_tokens=None).status_code == 200
    [sent] = caller.sent(tag)
    assert "[TERM_1]" in json.dumps(sent["body"])
    assert (settle_all(), RequestLog.objects.count()) == (0, 0)


def test_a_large_text_is_looked_at_whole_and_beside_the_other_requests(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard(caller)
    forbid(caller, TERM)
    threads: list[int] = []
    screen = engine.screen

    def screen_and_tell(*arguments: Any) -> Any:
        threads.append(get_ident())
        return screen(*arguments)

    monkeypatch.setattr(engine, "screen", screen_and_tell)
    for words, elsewhere in ((10, False), (60_000, True)):
        answer = caller.chat("a word " * words + TERM)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "guardrail_blocked")
        assert (threads[-1] != get_ident()) is elsewhere


def test_nothing_passes_by_a_rule_that_cannot_be_put_in_force(caller: Caller) -> None:
    guard(caller)
    forbid(caller, type="custom_regex", config={"type": "custom_regex", "pattern": "("})
    tag = uuid4().hex
    answer = caller.chat(asked(tag))
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "ask an administrator to correct its rules" in answer.json()["message"]
    assert caller.sent(tag) == []
    assert nothing_happened(caller)
