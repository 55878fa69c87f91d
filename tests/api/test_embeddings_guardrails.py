"""Embeddings under guardrails, which see every input, and from the response cache (section 4)."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

from apps.gateway.access import policy
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from tests.api.test_embeddings import embed, tagged
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, settle_all

TERM = "project zanzibar"


def test_a_rule_blocks_an_input_and_names_it(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, name="Secret projects")
    tag = tagged()
    refused = embed(caller, ["a cat", f"tell me of {TERM}"])
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "guardrail_blocked", "input")
    assert "in input[1]:" in error["message"]
    assert caller.sent(tag) == []
    settle_all()
    assert RequestLog.objects.get().cost == 0


def test_a_rule_masks_an_input_and_leaves_the_others(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, action="redact")
    tag = tagged()
    assert embed(caller, ["a cat", f"tell me of {TERM}"]).status_code == 200
    (sent,) = caller.sent(tag)
    assert sent["body"]["input"][0] == "a cat"
    assert sent["body"]["input"][1].startswith("tell me of ")
    assert TERM not in sent["body"]["input"][1]


def test_tokens_are_refused_where_rules_could_not_read_them(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM)
    tag = tagged()
    refused = embed(caller, [1, 2, 3])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")
    assert caller.sent(tag) == []
    settle_all()
    assert RequestLog.objects.get().cost == 0


def test_the_second_time_nobody_is_asked_and_nothing_is_paid(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    tag, text = tagged(), uuid4().hex
    first, second = embed(caller, [text, "b"]), embed(caller, [text, "b"])
    other = embed(caller, [text, "b"], dimensions=4)
    assert [one["x-gateway-cache"] for one in (first, second, other)] == ["miss", "hit", "miss"]
    assert second.json()["data"] == first.json()["data"]
    assert len(caller.sent(tag)) == 2
    settle_all()
    # 8 tokens and 1, at 0.037 USD per million.
    costs = [row.cost for row in RequestLog.objects.order_by("created_at")]
    assert costs == [Decimal("0.000000333"), 0, Decimal("0.000000333")]
