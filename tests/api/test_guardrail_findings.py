"""Violations as they are recorded: the finding, its owner, and the stored part of the content (section 2.11)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.settlement import outbox
from apps.gateway.settlement.settle import settle
from apps.guardrails.models import Violation
from apps.kernel.ids import time_of
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.guardrails_in_force import forbid, guard, violations, waiting, written
from tests.support.upstream import Caller, settle_all

TERM = "project zanzibar"
SECRET = "AKIAQ3EGR7TNX5WD2KLM"


@pytest.fixture(autouse=True)
def _everything_is_kept(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")


def asked(tag: str, text: str = f"tell me of {TERM}") -> str:
    return f"{text} [[sandbox tag={tag}]]"


def log_row() -> RequestLog:
    return RequestLog.objects.get()


def test_a_violation_names_whose_request_it_was(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, name="Secret projects")
    caller.chat(f"tell me of {TERM}")
    settle_all()
    row, found = log_row(), Violation.objects.get()
    assert (found.log_id, found.organization_id, found.api_key_id) == (row.id, caller.organization_id, caller.key.id)
    assert (found.rule_name, found.category, found.model) == ("Secret projects", "blocked_terms", "echo")
    assert found.created_at == time_of(row.id)
    assert len(found.content_hash) == 64


def test_what_was_found_is_written_once_however_often_it_is_settled(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, action="redact")
    caller.chat(f"{TERM} and {TERM}")
    messages = outbox.read_batch("test", 100, 1)
    assert (settle(messages), settle(messages), settle([*messages, *messages])) == (1, 0, 0)
    assert Violation.objects.count() == 1


def test_nothing_is_written_for_an_organization_that_is_gone(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM)
    caller.chat(f"tell me of {TERM}")
    Organization.objects.filter(pk=caller.organization_id).update(status="deleted")
    assert settle_all() == 1
    assert violations() == []


@pytest.mark.parametrize(("retention", "content"), [("retain", TERM), ("metadata", ""), ("none", "")])
def test_content_is_kept_as_retention_allows(caller: Caller, retention: str, content: str) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=retention)
    guard(caller)
    forbid(caller, TERM)
    caller.chat(f"tell me of {TERM}")
    settle_all()
    found = Violation.objects.get()
    assert (found.matched_content, len(found.content_hash)) == (content, 64)


@pytest.mark.parametrize("action", ["block", "redact"])
def test_a_secret_is_kept_nowhere(caller: Caller, action: str, capfd: Any, caplog: Any) -> None:
    guard(caller, rules={"secrets": action})
    # A rule of one's own that matches the same does not show it either.
    pattern = {"type": "custom_regex", "pattern": "key A[A-Z0-9]+"}
    forbid(caller, type="custom_regex", config=pattern, action="warn")
    tag = uuid4().hex
    answer = caller.chat(asked(tag, f"my key {SECRET}"))
    assert answer.status_code == {"block": 400, "redact": 200}[action]
    held = waiting()
    settle_all()
    logs = "".join([caplog.text, *capfd.readouterr()])
    everywhere = [json.dumps(caller.sent(tag)), held, waiting(), written(), logs]
    assert [SECRET in text for text in everywhere] == [False] * 5
    # The client gets back the words that it sent.
    assert (SECRET in answer.content.decode()) is (action == "redact")
    assert {content for _, _, _, content in violations()} == {"AK***LM", "key AK***LM"}


def test_findings_are_counted(caller: Caller) -> None:
    guard(caller, rules={"secrets": "redact"})
    forbid(caller, TERM, action="warn")
    before = counted(caller)
    assert caller.chat(f"key {SECRET} of {TERM}").status_code == 200
    after = counted(caller)
    assert {label: after[label] - before.get(label, 0) for label in after if after[label] != before.get(label, 0)} == {
        'action="redacted",rule="system:secrets"': 1,
        'action="warned",rule="custom"': 1,
    }


def counted(caller: Caller, metric: str = "findings") -> dict[str, float]:
    lines = caller.client.get("/metrics").content.decode().splitlines()
    name = f"gateway_guardrail_{metric}_total{{"
    found = [line.removeprefix(name).rpartition("} ") for line in lines if line.startswith(name)]
    return {label: float(value) for label, _, value in found}


def test_texts_that_came_before_are_remembered(caller: Caller) -> None:
    guard(caller, rules={"secrets": "redact"})
    said = f"key {SECRET} of mine"
    before = counted(caller, "texts")
    for _ in range(3):
        assert caller.chat(said).status_code == 200
    after = counted(caller, "texts")
    assert {label: after[label] - before.get(label, 0) for label in after} == {
        'outcome="remembered"': 2,
        'outcome="scanned"': 1,
    }
    settle_all()
    rows = Violation.objects.values_list("rule_id", "content_hash")
    assert (len(rows), len(set(rows))) == (3, 1)
