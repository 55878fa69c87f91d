"""Chat models of this gateway judge requests and answers of an organization."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.guardrails import outside_client
from apps.guardrails.models import CustomRule
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.hanging_names import wait_until
from tests.support.upstream import Caller, chunks_of, settle_all

GUARD = "guard_model"


@pytest.fixture(autouse=True)
def _everything_is_kept(caller: Caller) -> Any:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    outside_client.forget_all()
    yield
    outside_client.forget_all()


def ask_model(
    caller: Caller, template: str = "llama_guard", *, action: str = "block", observe: bool = False, **config: Any
) -> CustomRule:
    """Have the sandbox's model judge a caller's texts, with every rule of the gateway off. It says back what it is
    asked where the text's script is `verbatim`."""
    guard(caller)
    rule = CustomRule.objects.create(
        organization_id=caller.organization_id,
        name="Judge",
        type="model",
        config={"type": "model", "model": "sandbox/echo", "template": template, **config},
        action=action,
        observe_only=observe,
    )
    policy.forget_all()
    return rule


def rows() -> list[RequestLog]:
    """Return the rows of the log, oldest first."""
    settle_all()
    return list(RequestLog.objects.order_by("created_at", "id"))


def row_of(route: str) -> RequestLog:
    """Return the only row of a route."""
    [row] = [one for one in rows() if one.route == route]
    return row


def calls_in_log() -> list[dict[str, Any]]:
    """Return the calls of guards in the client's request, without their durations."""
    calls = row_of("chat_completions").routing_metadata["guardrail_calls"]
    assert all(isinstance(one.pop("milliseconds"), int) for one in calls)
    return list(calls)


class TestRequests:
    def test_unsafe_blocks_and_names_the_hazard(self, caller: Caller) -> None:
        rule = ask_model(caller)
        tag = uuid4().hex
        answer = caller.chat(f"unsafe\nS1,S9 [[sandbox verbatim tag={tag}]]")
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["code"], error["message"]) == (
            "guardrail_blocked",
            "Blocked by the guardrail 'Judge' in messages[0].content (S1 Violent Crimes): remove the matched text, or"
            " ask an administrator of the organization to change the rule",
        )
        # The guard alone was asked: with the client's words, as a conversation.
        [sent] = caller.sent(tag)
        assert sent["body"]["messages"] == [
            {"role": "user", "content": f"unsafe\nS1,S9 [[sandbox verbatim tag={tag}]]"}
        ]
        assert (sent["body"]["temperature"], sent["body"]["max_tokens"]) == (0, 64)
        settle_all()
        assert sorted(one[:3] for one in violations()) == [
            (str(rule.id), "blocked", "S1 Violent Crimes"),
            (str(rule.id), "blocked", "S9 Indiscriminate Weapons"),
        ]

    def test_its_row_is_marked_and_paid(self, caller: Caller) -> None:
        rule = ask_model(caller)
        answer = caller.chat("safe [[sandbox verbatim usage=100,10]]", headers={"x-request-id": "asked-1"})
        assert answer.status_code == 200
        asked, judged = row_of("chat_completions"), row_of(GUARD)
        assert judged.request_id == asked.request_id == "asked-1"
        assert judged.custom_headers == {"guardrail-rule": str(rule.id)}
        assert (judged.used_model, judged.content, judged.api_key_id) == ("echo", "safe", caller.key.id)
        assert judged.cost is not None
        assert judged.cost > 0
        assert calls_in_log() == [
            {
                "rule_id": str(rule.id),
                "rule_name": "Judge",
                "type": "model",
                "direction": "input",
                "outcome": "passed",
                "requests": 1,
                "cost": float(judged.cost),
                "log_ids": [str(judged.id)],
            }
        ]
        spent = Decimal(100) - Organization.objects.get(pk=caller.organization_id).credits
        assert asked.cost is not None
        assert spent == asked.cost + judged.cost + (asked.data_storage_cost or 0) + (judged.data_storage_cost or 0)

    def test_it_is_not_asked_about_its_own_question(self, caller: Caller) -> None:
        ask_model(caller)
        forbid(caller, "zanzibar", action="redact")
        assert caller.chat("safe zanzibar [[sandbox verbatim]]").status_code == 200
        assert sorted(row.route for row in rows()) == ["chat_completions", GUARD]
        # It gets what the gateway's own rules left.
        assert "zanzibar" not in json.dumps(row_of(GUARD).messages)

    def test_keys_that_may_not_use_the_model_are_guarded_too(self, caller: Caller) -> None:
        ask_model(caller, model="sandbox/reasoner")
        IamRule.objects.create(
            api_key=caller.key, rule_type="allow_models", rule_value={"models": ["echo"]}, status=IamRule.Status.ACTIVE
        )
        policy.forget_all()
        assert caller.chat("unsafe [[sandbox verbatim reasoning=0]]").status_code == 400
        assert caller.chat("hello", model="sandbox/reasoner").status_code == 403

    def test_it_counts_for_no_limit_on_requests(self, caller: Caller) -> None:
        ask_model(caller)
        Organization.objects.filter(pk=caller.organization_id).update(requests_per_minute=1)
        type(caller.key).objects.filter(pk=caller.key.pk).update(requests_per_minute=1)
        policy.forget_all()
        assert caller.chat("safe [[sandbox verbatim]]").status_code == 200
        assert [row.route for row in rows()].count(GUARD) == 1
        assert caller.chat("safe [[sandbox verbatim]]").status_code == 429

    def test_the_keys_spending_limit_holds(self, caller: Caller) -> None:
        ask_model(caller)
        type(caller.key).objects.filter(pk=caller.key.pk).update(usage_limit=Decimal("0.001"))
        policy.forget_all()
        refused = caller.chat("safe [[sandbox verbatim]]", max_tokens=1_600)
        assert refused.status_code == 503
        assert "its model answered 402" in refused.json()["error"]["message"]
        assert [row.route for row in rows()] == ["chat_completions"]

    def test_texts_that_passed_are_not_judged_again(self, caller: Caller) -> None:
        ask_model(caller)
        for _ in range(2):
            assert caller.chat("safe [[sandbox verbatim]]").status_code == 200
        assert [row.route for row in rows()].count(GUARD) == 1

    def test_categories_that_were_not_chosen_pass(self, caller: Caller) -> None:
        ask_model(caller, categories=["S1", "S10"])
        assert caller.chat("unsafe\nS6 [[sandbox verbatim]]").status_code == 200
        assert caller.chat("unsafe\nS6,S10 [[sandbox verbatim]]").status_code == 400

    def test_own_prompt_with_its_words(self, caller: Caller) -> None:
        ask_model(caller, "custom", prompt="{text}", foundWord="violation", passedWord="fine")
        assert caller.chat("Fine. [[sandbox verbatim]]").status_code == 200
        refused = caller.chat("VIOLATION: of a rule [[sandbox verbatim]]")
        assert "(violation)" in refused.json()["error"]["message"]

    def test_instructions_are_judged_only_where_chosen(self, caller: Caller) -> None:
        messages = [
            {"role": "system", "content": "unsafe"},
            {"role": "user", "content": "safe [[sandbox verbatim]]"},
        ]
        ask_model(caller)
        assert caller.chat(messages=messages).status_code == 200
        [row] = [one for one in rows() if one.route == GUARD]
        assert "unsafe" not in json.dumps(row.messages)

    def test_shieldgemma_is_asked_about_each_harm(self, caller: Caller) -> None:
        ask_model(caller, "shieldgemma", promptBy="server", categories=["hate", "dangerous"])
        tag = uuid4().hex
        refused = caller.chat(f"Yes [[sandbox verbatim tag={tag}]]")
        assert "(dangerous)" in refused.json()["error"]["message"]
        asked = [sent["body"]["chat_template_kwargs"]["guideline"] for sent in caller.sent(tag)]
        assert sorted(one.partition(":")[0] for one in asked) == ['* "No Dangerous Content"', '* "No Hate Speech"']


class TestAnswers:
    @pytest.mark.parametrize("stream", [False, True])
    def test_an_unsafe_answer_is_held_back(self, caller: Caller, stream: bool) -> None:
        tag = uuid4().hex
        ask_model(caller, direction="output", template="custom", prompt=f"{{text}} [[sandbox verbatim tag={tag}]]")
        answer = caller.chat("unsafe words [[sandbox verbatim]]", stream=stream)
        assert answer.status_code == 200
        if stream:
            choices = [one["choices"][0] for one in chunks_of(answer) if one != "[DONE]" and one["choices"]]
            assert "unsafe" not in json.dumps(choices)
            assert choices[-1]["finish_reason"] == "content_filter"
        else:
            [choice] = answer.json()["choices"]
            assert (choice["message"]["content"], choice["finish_reason"]) == ("", "content_filter")
        [sent] = caller.sent(tag)
        assert sent["body"]["messages"][0]["content"] == f"unsafe words [[sandbox verbatim tag={tag}]]"

    def test_an_answer_is_judged_with_the_question(self, caller: Caller) -> None:
        ask_model(caller, direction="output", onFailure="open")
        assert caller.chat("where is Rome? [[sandbox words=1]]").status_code == 200
        asked = row_of(GUARD).messages
        assert [one["role"] for one in asked] == ["user", "assistant"]
        assert asked[0]["content"].startswith("where is Rome?")


class TestFailures:
    @pytest.mark.parametrize(
        ("script", "error"),
        [
            ("maybe [[sandbox verbatim]]", "the model's answer begins neither with unsafe nor with safe"),
            ("[[sandbox empty]]", "the model's answer begins neither with unsafe nor with safe"),
        ],
    )
    def test_no_verdict(self, caller: Caller, script: str, error: str) -> None:
        ask_model(caller)
        refused = caller.chat(script)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "guardrail_unavailable")
        assert refused.json()["error"]["message"] == f"The guardrail 'Judge' could not judge this request: {error}"
        [call] = calls_in_log()
        assert (call["outcome"], call["error"]) == ("failed", error)
        assert call["log_ids"] == [str(row_of(GUARD).id)]

    def test_a_slow_model_costs_its_time_limit_and_is_cancelled(self, caller: Caller) -> None:
        ask_model(caller, timeoutSeconds=0.3)
        tag = uuid4().hex
        refused = caller.chat(f"safe [[sandbox verbatim hang tag={tag}]]")
        assert refused.json()["error"]["message"].endswith("it did not answer within 0.3 s")
        wait_until(lambda: [one for one in rows() if one.route == GUARD])
        row = row_of(GUARD)
        assert (row.status_code, row.canceled) == (499, True)

    def test_an_unknown_model(self, caller: Caller) -> None:
        ask_model(caller, model="no-such-model")
        refused = caller.chat("hello")
        assert refused.status_code == 503
        assert "could not judge this request: its model answered 400" in refused.json()["error"]["message"]

    def test_open_lets_the_request_pass(self, caller: Caller) -> None:
        ask_model(caller, model="sandbox/down", onFailure="open")
        assert caller.chat("hello").status_code == 200
        [call] = calls_in_log()
        assert call["outcome"] == "failed"
        assert row_of(GUARD).status_code == 503

    def test_observing_changes_nothing(self, caller: Caller) -> None:
        ask_model(caller, observe=True)
        assert caller.chat("unsafe\nS2 [[sandbox verbatim]]").status_code == 200
        settle_all()
        assert [one[1:3] for one in violations()] == [("observed", "S2 Non-Violent Crimes")]
