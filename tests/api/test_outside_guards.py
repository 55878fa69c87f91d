"""Webhooks of an organization judge requests and answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any
from uuid import uuid4

import pytest
import requests

from apps.guardrails import outside_client
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.stack.product import free_port
from tests.support.guard_service import SECRET, GuardService, ask_guard
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.upstream import Caller, chunks_of, settle_all


@pytest.fixture(autouse=True)
def _everything_is_kept(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")


def said(caller: Caller, tag: str) -> list[Any]:
    """Return the contents of the messages that the provider got under a tag."""
    return [message["content"] for sent in caller.sent(tag) for message in sent["body"]["messages"]]


def calls_in_log() -> list[dict[str, Any]]:
    """Return the calls of guards that the newest row of the log has, without their durations."""
    settle_all()
    calls = RequestLog.objects.latest("id").routing_metadata["guardrail_calls"]
    assert all(isinstance(one.pop("milliseconds"), int) for one in calls)
    return list(calls)


class TestRequests:
    def test_a_signed_question_has_the_texts_and_no_credentials(self, caller: Caller, service: GuardService) -> None:
        rule = ask_guard(caller, service.url)
        answer = caller.chat("hello [[sandbox tag=t]]", headers={"x-session-id": "s-1"})
        assert answer.status_code == 200
        [taken] = service.receiver.taken
        question = json.loads(taken.body)
        assert question == {
            "version": 1,
            "id": taken.headers["webhook-id"],
            "direction": "input",
            "rule": {"id": str(rule.id), "name": "Outside"},
            "organizationId": str(caller.organization_id),
            "apiKeyId": str(caller.key.id),
            "model": "sandbox/echo",
            "session": "s-1",
            "texts": [
                {
                    "index": 0,
                    "role": "user",
                    "place": "messages[0].content[0].text",
                    "text": "hello [[sandbox tag=t]]",
                    "replaceable": True,
                }
            ],
        }
        moment = taken.headers["webhook-timestamp"]
        assert abs(int(moment) - time.time()) < 60
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        signed = f"{question['id']}.{moment}.".encode() + taken.body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert taken.headers["webhook-signature"] == f"v1,{expected}"
        assert caller.token not in json.dumps(taken.headers) + taken.body.decode()
        assert calls_in_log() == [
            {
                "rule_id": str(rule.id),
                "rule_name": "Outside",
                "type": "webhook",
                "direction": "input",
                "outcome": "passed",
                "requests": 1,
            }
        ]

    def test_block_refuses_and_is_recorded(self, caller: Caller, service: GuardService) -> None:
        rule = ask_guard(caller, service.url)
        service.answers({"action": "block", "reason": "talks of\nlayoffs"})
        tag = uuid4().hex
        answer = caller.chat(f"layoffs? [[sandbox tag={tag}]]")
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["code"], error["message"]) == (
            "guardrail_blocked",
            "Blocked by the guardrail 'Outside' in messages[0].content (talks of layoffs): remove the matched text, or"
            " ask an administrator of the organization to change the rule",
        )
        assert caller.sent(tag) == []
        [call] = calls_in_log()
        assert call["outcome"] == "found"
        assert [one[:3] for one in violations()] == [(str(rule.id), "blocked", "talks of layoffs")]

    def test_neutralize_cuts_the_text_out_and_is_recorded(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, action="neutralize")
        service.answers({"action": "block", "reason": "no"})
        tag = uuid4().hex
        assert caller.chat(f"layoffs? [[sandbox tag={tag}]]").status_code == 200
        settle_all()
        assert [one[1:3] for one in violations()] == [("neutralized", "no")]

    def test_redact_masks_the_places_in_characters(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url)
        tag = uuid4().hex
        text = f"\N{GRINNING FACE} Zoë met Ann [[sandbox tag={tag}]]"
        service.answers(
            {
                "action": "redact",
                "redactions": [
                    {"index": 0, "start": 2, "end": 5, "label": "person"},
                    {"index": 0, "start": 10, "end": 13},
                ],
            }
        )
        answer = caller.chat(text)
        assert answer.status_code == 200
        assert said(caller, tag) == [f"\N{GRINNING FACE} [PERSON_REDACTED] met [REDACTED] [[sandbox tag={tag}]]"]
        assert [one["action"] for one in answer.json()["metadata"]["guardrails"]] == ["redacted"]

    def test_replace_rewrites_the_text(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url)
        tag = uuid4().hex
        service.answers({"action": "replace", "replacements": [{"index": 0, "text": f"be kind [[sandbox tag={tag}]]"}]})
        assert caller.chat("be rude").status_code == 200
        assert said(caller, tag) == [f"be kind [[sandbox tag={tag}]]"]

    @pytest.mark.parametrize(("action", "taken"), [("redact", "redacted"), ("warn", "warned")])
    def test_the_rule_bounds_what_the_webhook_may_do(
        self, caller: Caller, service: GuardService, action: str, taken: str
    ) -> None:
        ask_guard(caller, service.url, action=action, onFailure="closed")
        service.answers({"action": "block", "reason": "no"})
        assert caller.chat("hello").status_code == 200
        settle_all()
        assert [one[1] for one in violations()] == [taken]

    def test_it_gets_what_the_gateways_own_rules_left(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url)
        guard(caller, rules={"pii_detection": "redact"})
        assert caller.chat("mail ann.lee@zanzibar-post.com").status_code == 200
        assert [one["text"] for one in service.questions[0]["texts"]] == ["mail [EMAIL_1]"]

    def test_it_is_not_asked_about_what_is_refused_anyway(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url)
        forbid(caller, "zanzibar")
        assert caller.chat("to zanzibar").status_code == 400
        assert service.questions == []

    def test_observing_changes_nothing_and_is_recorded(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, observe=True)
        service.answers({"action": "block", "reason": "no"})
        assert caller.chat("hello").status_code == 200
        settle_all()
        assert [one[1:3] for one in violations()] == [("observed", "no")]

    def test_json_arguments_are_not_replaceable(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url)
        call = {"id": "c1", "type": "function", "function": {"name": "mail", "arguments": '{"to": "Ann"}'}}
        tag = uuid4().hex
        messages = [
            {"role": "user", "content": f"hi [[sandbox tag={tag}]]"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sent"},
        ]

        def mask(question: dict[str, Any]) -> dict[str, Any]:
            [one] = [text for text in question["texts"] if "Ann" in text["text"]]
            assert one["replaceable"] is False
            start = one["text"].index("Ann")
            place = {"index": one["index"], "start": start, "end": start + 3, "label": "NAME"}
            return {"action": "redact", "redactions": [place]}

        service.answers(mask)
        assert caller.chat(messages=messages).status_code == 200
        [sent] = caller.sent(tag)
        [masked] = sent["body"]["messages"][1]["tool_calls"]
        assert json.loads(masked["function"]["arguments"]) == {"to": "[NAME_REDACTED]"}


class TestFailures:
    @pytest.mark.parametrize(
        ("script", "status", "error"),
        [
            ({}, 500, "it answered 500"),
            ({}, 302, "it redirects, which is not followed: enter the final address"),
            (b"no", 200, "the answer is not valid JSON"),
            ([], 200, "the answer is not a JSON object"),
            ({"action": "maybe"}, 200, "`action` is none of allow, block, redact, replace"),
            ({"action": "redact"}, 200, "`redactions` is not a list of objects"),
            (
                {"action": "redact", "redactions": [{"index": 1, "start": 0, "end": 1}]},
                200,
                "the answer names text 1; there are 1",
            ),
            (
                {"action": "redact", "redactions": [{"index": 0, "start": 4, "end": 6}]},
                200,
                "the answer names characters 4 to 6 of text 0",
            ),
        ],
    )
    def test_no_usable_answer(
        self, caller: Caller, service: GuardService, script: Any, status: int, error: str
    ) -> None:
        ask_guard(caller, service.url, onFailure="closed")
        service.answers(script, status=status)
        refused = caller.chat("hello")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "guardrail_unavailable")
        assert refused.json()["error"]["message"] == f"The guardrail 'Outside' could not judge this request: {error}"
        [call] = calls_in_log()
        assert (call["outcome"], call["error"]) == ("failed", error)

    def test_open_lets_the_request_pass(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, onFailure="open")
        service.answers({}, status=500)
        assert caller.chat("hello").status_code == 200
        [call] = calls_in_log()
        assert (call["outcome"], call["error"]) == ("failed", "it answered 500")

    def test_a_dead_guard_is_not_asked_by_each_request(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, onFailure="open")
        service.answers({}, status=500)
        for _ in range(5):
            assert caller.chat("hello").status_code == 200
        assert len(service.questions) == outside_client.OPEN_AFTER
        [call] = calls_in_log()
        assert (call["outcome"], call["requests"]) == ("skipped", 0)

    def test_a_guard_that_recovers_is_asked_again(
        self, caller: Caller, service: GuardService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outside_client, "FIRST_PAUSE", 0.0)
        ask_guard(caller, service.url, onFailure="open")
        service.answers({}, status=500)
        for _ in range(4):
            caller.chat("hello")
        service.answers({"action": "block"})
        assert caller.chat("hello").status_code == 400

    def test_a_slow_guard_costs_its_time_limit(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, onFailure="closed", timeoutSeconds=0.2)
        service.receiver.then = lambda: time.sleep(1.0)
        refused = caller.chat("hello")
        assert refused.json()["error"]["message"].endswith("it did not answer within 0.2 s")
        assert len(service.questions) == 1

    def test_a_failed_connection_is_tried_once_more(
        self, caller: Caller, service: GuardService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask_guard(caller, service.url, onFailure="closed")
        exchange, attempts = outside_client._exchange, []

        def fail_first(*arguments: Any) -> bytes:
            attempts.append(arguments)
            if len(attempts) == 1:
                raise requests.ConnectionError
            return exchange(*arguments)

        monkeypatch.setattr(outside_client, "_exchange", fail_first)
        assert caller.chat("hello").status_code == 200
        assert (len(attempts), len(service.questions)) == (2, 1)

    def test_a_guard_that_nothing_listens_for(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, f"http://127.0.0.1:{free_port()}/", onFailure="closed")
        refused = caller.chat("hello")
        assert refused.json()["error"]["message"].endswith("it could not be reached")

    def test_an_address_that_became_private_is_not_called(
        self, caller: Caller, service: GuardService, settings: Any
    ) -> None:
        ask_guard(caller, service.url, onFailure="closed")
        settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
        refused = caller.chat("hello")
        assert refused.status_code == 503
        assert "its address cannot be called" in refused.json()["error"]["message"]
        assert service.questions == []


class TestAnswers:
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_blocked_answer_says_nothing_and_is_charged(
        self, caller: Caller, service: GuardService, stream: bool
    ) -> None:
        ask_guard(caller, service.url, direction="output")
        service.answers({"action": "block", "reason": "no"})
        answer = caller.chat("hello", stream=stream)
        if stream:
            chunks = [one for one in chunks_of(answer) if one != "[DONE]"]
            contents = [c["delta"].get("content") for one in chunks for c in one["choices"]]
            reasons = [c["finish_reason"] for one in chunks for c in one["choices"] if c.get("finish_reason")]
            assert (set(contents) <= {None, ""}, reasons) == (True, ["content_filter"])
        else:
            [choice] = answer.json()["choices"]
            assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", "content_filter")
        settle_all()
        row = RequestLog.objects.latest("id")
        assert row.completion_tokens
        assert [one[1:3] for one in violations()] == [("blocked", "no")]

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_rewritten_answer(self, caller: Caller, service: GuardService, stream: bool) -> None:
        ask_guard(caller, service.url, direction="both")

        def rewrite(question: dict[str, Any]) -> dict[str, Any]:
            if question["direction"] == "input":
                return {"action": "allow"}
            return {"action": "replace", "replacements": [{"index": 0, "text": "all is well"}]}

        service.answers(rewrite)
        answer = caller.chat("hello", stream=stream)
        if stream:
            chunks = [one for one in chunks_of(answer) if one != "[DONE]"]
            text = "".join(c["delta"].get("content") or "" for one in chunks for c in one["choices"])
        else:
            text = answer.json()["choices"][0]["message"]["content"]
        assert text == "all is well"
        assert [one["direction"] for one in service.questions] == ["input", "output"]
        assert [one["role"] for one in service.questions[1]["texts"]] == ["assistant"]

    def test_a_failed_guard_that_is_closed_holds_the_answer_back(self, caller: Caller, service: GuardService) -> None:
        ask_guard(caller, service.url, direction="output", onFailure="closed")
        service.answers({}, status=500)
        [choice] = caller.chat("hello").json()["choices"]
        assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", "content_filter")

    def test_observing_passes_the_answer_as_it_is(self, caller: Caller, service: GuardService) -> None:
        plain = caller.chat("hello").json()["choices"][0]["message"]["content"]
        ask_guard(caller, service.url, direction="output", observe=True)
        service.answers({"action": "block", "reason": "no"})
        assert caller.chat("hello").json()["choices"][0]["message"]["content"] == plain
        settle_all()
        assert [one[1:3] for one in violations()] == [("observed", "no")]
