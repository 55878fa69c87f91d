"""A plain answer, and a stream whose tokens are not all visible: the provider gets the limit that the hold covers."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest

from apps.catalog.models import Provider
from apps.logs.models import RequestLog
from tests.support.credits_left import (
    CENT,
    SLIP,
    chunks_in,
    credited,
    credits_of,
    held,
    priced,
    warnings_of,
)
from tests.support.model_routes import post
from tests.support.upstream import Caller, settle_all


def test_a_plain_answer_is_given_the_limit_that_is_covered_and_says_so(caller: Caller) -> None:
    credited(caller, CENT)
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox kb=400 tag={tag}]]", max_tokens=None)
    limit = caller.sent(tag)[0]["body"]["max_tokens"]
    # The tokens for a quarter of a cent, or for what the prompt leaves of it.
    assert 4_100 < limit < 4_167
    body = answer.json()
    assert (body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == ("length", limit)
    assert body["metadata"]["warnings"] == [
        {
            "param": "max_tokens",
            "message": f"the remaining balance or limit covers an answer of {limit} tokens; that is the limit now",
        }
    ]
    assert answer.headers["x-gateway-loss"] == "max_tokens"
    settle_all()
    assert RequestLog.objects.get().routing_metadata["warnings"] == body["metadata"]["warnings"]


def test_who_has_enough_is_given_no_limit(caller: Caller) -> None:
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox tag={tag}]]", max_tokens=None)
    assert "max_tokens" not in caller.sent(tag)[0]["body"]
    assert "x-gateway-loss" not in answer.headers
    assert warnings_of(answer.json()["metadata"]) == []


def test_a_strict_client_is_not_refused_for_a_limit_that_it_did_not_set(caller: Caller) -> None:
    credited(caller, CENT)
    answer = post(caller, "chat", "hi", max_tokens=None, headers={"X-Strict": "true"})
    assert (answer.status, warnings_of(answer.json()["metadata"])) == (200, ["max_tokens"])


def test_the_limit_is_shared_by_all_answers(caller: Caller) -> None:
    credited(caller, CENT)
    tag = uuid4().hex
    body = post(caller, "chat", f"hi [[sandbox kb=400 tag={tag}]]", max_tokens=None, n=4).json()
    limit = caller.sent(tag)[0]["body"]["max_tokens"]
    assert 1_030 < limit < 1_042
    assert body["usage"]["completion_tokens"] == 4 * limit


def test_the_limit_is_by_the_price_of_who_answers(caller: Caller, backup: str) -> None:
    """The amount held for the first provider pays for a tenth of the tokens at the backup."""
    credited(caller, CENT)
    tag = uuid4().hex
    script = f"hi [[sandbox kb=400 tag={tag} times=1 status=500]]"
    body = post(caller, "chat", script, max_tokens=None, model="echo").json()
    first, second = (sent["body"]["max_tokens"] for sent in caller.sent(tag))
    assert (body["metadata"]["used_provider"], body["usage"]["completion_tokens"]) == (backup, second)
    assert second == pytest.approx(first / 10, rel=0.1)
    settle_all()
    assert credits_of(caller) > -SLIP


def test_an_explicit_limit_of_a_plain_request_is_covered_or_refused(caller: Caller) -> None:
    credited(caller, CENT / 2)
    answer = post(caller, "chat", "hi", max_tokens=16_384)
    assert (answer.status, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    assert answer.json()["message"].endswith("is left; lower max_tokens or add credits under Billing")


def test_too_little_for_even_a_short_answer_is_refused(caller: Caller) -> None:
    credited(caller, "0.0001")
    for stream in (False, True):
        answer = post(caller, "chat", "hi", max_tokens=None, stream=stream)
        assert answer.status == 402
        assert "this request needs at least" in answer.json()["message"]
    assert held(caller) == 0


def test_a_limit_leaves_room_for_a_thinking_budget_or_the_request_is_refused(caller: Caller) -> None:
    Provider.objects.filter(pk="sandbox").update(dialect="anthropic", auth="x-api-key")
    priced("0.6", reasoning=True)
    credited(caller, "0.01")
    for credits, status in (("0.01", 200), ("0.004", 402)):
        credited(caller, credits)
        tag = uuid4().hex
        thinking = {"max_tokens": 8_000}
        answer = post(caller, "chat", f"hi [[sandbox tag={tag}]]", max_tokens=None, reasoning=thinking)
        assert answer.status == status, answer.content
        if status == 200:
            body = caller.sent(tag)[0]["body"]
            assert body["thinking"]["budget_tokens"] == 8_000
            assert 8_256 <= body["max_tokens"] < 16_384


def test_a_model_that_states_no_limit_is_held_for_more_than_any_writes(caller: Caller) -> None:
    priced("0.6", max_output=None, context_length=None)
    for credits, limited in ((100, False), (CENT, True)):
        credited(caller, credits)
        tag = uuid4().hex
        assert post(caller, "chat", f"hi [[sandbox tag={tag}]]", max_tokens=None).status == 200
        assert ("max_tokens" in caller.sent(tag)[0]["body"]) is limited
    answer = caller.client.post(
        "/v1/route/explain",
        {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]},
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}"},
    ).json()
    assert Decimal(answer["estimate"]["max_cost_usd"]) == pytest.approx(Decimal("0.0786432"), abs=SLIP)


def test_a_limit_leaves_room_for_the_prompt_in_the_context(caller: Caller) -> None:
    priced("0.6", max_output=8_000, context_length=8_192)
    credited(caller, "0.015")
    tag = uuid4().hex
    words = "word " * 4_000
    assert post(caller, "chat", f"{words} [[sandbox tag={tag} words=5]]", max_tokens=None).status == 200
    (sent,) = caller.sent(tag)
    assert 1_900 < sent["body"]["max_tokens"] < 1_942


def test_a_stream_whose_thinking_nobody_sees_is_limited_by_what_is_held(caller: Caller) -> None:
    """The caller pays for unseen tokens too, with models that do not show their thinking."""
    Provider.objects.filter(pk="sandbox").update(facts={"developer_role": True})
    priced("0.6", reasoning=True, max_output=128_000)
    credited(caller, CENT)
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox kb=400 tag={tag}]]", stream=True, max_tokens=None)
    limit = caller.sent(tag)[0]["body"]["max_tokens"]
    assert 4_100 < limit < 4_167
    last = chunks_in(answer.content)[-2]
    assert (last["choices"][0]["finish_reason"], warnings_of(last["metadata"])) == ("length", ["max_tokens"])
    settle_all()
    assert RequestLog.objects.get().completion_tokens == limit
