"""A stream whose provider writes past its limit holds more ahead of all that is passed on, or ends and says why."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing import reservations
from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from tests.support.credits_left import (
    CENT,
    HEEDLESS,
    SLIP,
    chunks_in,
    credited,
    credits_of,
    events_in,
    held,
    opened,
    priced,
    warnings_of,
)
from tests.support.model_routes import post
from tests.support.upstream import Caller, settle_all


def test_a_stream_that_fits_its_first_part_costs_no_further_round_trip(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "extend", None)
    assert post(caller, "chat", "hi [[sandbox kb=15]]", stream=True, max_tokens=None).status == 200
    assert post(caller, "chat", "hi [[sandbox kb=60]]", stream=True, max_tokens=5_000).status == 200, "held whole"


def test_a_stream_holds_more_in_growing_steps_and_has_all_of_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, amounts = reservations.extend, []

    def extended(*asked: Any) -> reservations.HoldExtension:
        amounts.append(extend(*asked).hold.amount_nanos)
        return extend(*asked)

    monkeypatch.setattr(reservations, "extend", extended)
    priced("0.6", max_output=4_096)
    *_, last, done = chunks_in(post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None).content)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert warnings_of(last["metadata"]) == []
    # 4,096 tokens at first, a quarter more each time, for 102,400.
    steps = [4_096]
    while steps[-1] < 102_400:
        steps.append(steps[-1] + steps[-1] // 4)
    assert [round(amount / 600) for amount in amounts] == pytest.approx(steps[1:], abs=30)
    settle_all()
    row = RequestLog.objects.get()
    assert (row.completion_tokens, row.estimated_cost, row.unified_finish_reason) == (102_400, False, "completed")
    assert held(caller) == 0


def test_no_burst_is_passed_on_before_it_is_held_for(caller: Caller) -> None:
    """All of it comes in one piece."""
    credited(caller, CENT)
    answer = post(caller, "chat", "hi [[sandbox kb=400 heedless chunks=1]]", stream=True, max_tokens=None)
    said = "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_in(answer.content) if chunk != "[DONE]"
    )
    assert 40_000 < len(said) < 67_000
    settle_all()
    assert -SLIP < credits_of(caller) < CENT / 100


def test_a_chat_stream_that_money_ends_is_whole_and_says_why(caller: Caller) -> None:
    credited(caller, CENT)
    body = {"stream": True, "max_tokens": None, "stream_options": {"include_usage": True}}
    *chunks, done = chunks_in(post(caller, "chat", f"hi {HEEDLESS}", **body).content)
    assert done == "[DONE]"
    end, bill = chunks[-2:]
    assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    # The limit that it was given, and that it ended past it.
    assert warnings_of(bill["metadata"]) == ["max_tokens", "max_tokens"]
    limit, end = bill["metadata"]["warnings"]
    assert limit["message"] == "the remaining balance or limit covers an answer of 4163 tokens; that is the limit now"
    assert end["message"].startswith("the remaining balance or limit covers no more than about ")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.has_error, row.estimated_cost) == ("length_limit", False, True)
    assert row.routing_metadata["warnings"] == [limit, end]
    assert row.completion_tokens == bill["usage"]["completion_tokens"]
    assert CENT - row.cost == credits_of(caller)


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("kb=400 heedless", ["text"]),
        ("reasoning=60000 words=10 heedless", ["thinking"]),
        ("reasoning=20 kb=400 heedless", ["thinking", "text"]),
    ],
)
def test_a_messages_stream_that_money_ends_is_whole(caller: Caller, script: str, kinds: list[str]) -> None:
    priced("0.6", max_output=200_000)
    credited(caller, CENT)
    events = events_in(post(caller, "messages", f"hi [[sandbox {script}]]", stream=True, max_tokens=64_000).content)
    types = [event["type"] for event in events]
    assert types[0] == "message_start"
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"] == kinds
    assert types.count("content_block_stop") == len(kinds)
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.streamed) == ("length_limit", True)
    assert {one["param"] for one in row.routing_metadata["warnings"]} == {"max_tokens"}
    assert events[-2]["usage"]["output_tokens"] == row.completion_tokens
    assert -SLIP < credits_of(caller) < CENT / 100


TOOL = {
    "type": "function",
    "function": {"name": "save", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}


def test_arguments_of_calls_are_written_too(caller: Caller) -> None:
    credited(caller, "0.004")
    content = f'save({{"text": "{"word " * 8_000}"}}) [[sandbox heedless chunk=400]]'
    *chunks, done = chunks_in(post(caller, "chat", content, stream=True, max_tokens=None, tools=[TOOL]).content)
    said = "".join(
        call["function"].get("arguments", "")
        for chunk in chunks
        for call in chunk["choices"][0]["delta"].get("tool_calls", ())
    )
    assert 10_000 < len(said) < 18_000
    assert (chunks[-1]["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    settle_all()
    assert credits_of(caller) > -SLIP


def test_the_end_by_money_hangs_up_on_the_provider(caller: Caller) -> None:
    credited(caller, CENT / 10)
    tag = uuid4().hex
    post(caller, "chat", f"hi [[sandbox kb=40000 heedless chunk=4000 tag={tag}]]", stream=True, max_tokens=None)
    (sent,) = caller.sent(tag)
    assert sent["outcome"] in {"client_closed", None}
    assert sent["bytesSent"] < 10_000_000


def test_every_answer_of_several_ends(caller: Caller) -> None:
    credited(caller, CENT)
    *chunks, done = chunks_in(post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None, n=3).content)
    ends = {chunk["choices"][0]["index"]: chunk["choices"][0]["finish_reason"] for chunk in chunks}
    assert (ends, done) == ({0: "length", 1: "length", 2: "length"}, "[DONE]")
    settle_all()
    assert credits_of(caller) > -SLIP


def test_a_keys_limit_ends_a_stream_like_credits(caller: Caller) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=CENT)
    policy.forget_all()
    *_, last, done = chunks_in(post(caller, "chat", f"hi {HEEDLESS}", stream=True, max_tokens=None).content)
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    settle_all()
    spent = ApiKey.objects.get(pk=caller.key.pk).usage
    assert CENT * 99 / 100 < spent < CENT + SLIP
    assert credits_of(caller) == 100 - spent


def test_a_stream_with_a_limit_of_its_own_begins_though_not_all_of_it_is_covered(caller: Caller) -> None:
    credited(caller, CENT / 10)
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox words=20 tag={tag}]]", stream=True, max_tokens=16_000)
    *_, last, done = chunks_in(answer.content)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    # A quarter of the remainder, less the prompt.
    assert caller.sent(tag)[0]["body"]["max_tokens"] == 411
    assert warnings_of(last["metadata"]) == ["max_tokens"]


def test_a_prompt_that_the_provider_counts_higher_is_held_for_at_once(caller: Caller) -> None:
    priced("0.6", max_output=200_000)
    Provider.objects.filter(pk="sandbox").update(dialect="anthropic", auth="x-api-key")
    generation.bump(generation.CATALOG)
    stream = opened(caller, "one two three four five six [[sandbox usage=1000000,20]]")
    next(stream)
    assert held(caller) > Decimal("0.15")
    assert b"[DONE]" in b"".join(stream)
    settle_all()
    assert 100 - credits_of(caller) == RequestLog.objects.get().cost == Decimal("0.150012")


def test_a_prompt_that_cannot_be_held_for_ends_the_answer(caller: Caller) -> None:
    Provider.objects.filter(pk="sandbox").update(dialect="anthropic", auth="x-api-key")
    credited(caller, CENT)
    *_, last, done = chunks_in(
        post(caller, "chat", "hi [[sandbox kb=400 heedless usage=60000,102400]]", stream=True, max_tokens=None).content
    )
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    settle_all()
    row = RequestLog.objects.get()
    # 0.009 USD for the prompt, as it was counted, leave 0.001 for 1,667 tokens.
    assert row.prompt_tokens == 60_000
    assert 1_500 < (row.completion_tokens or 0) <= 1_667
    assert credits_of(caller) > -SLIP


def test_a_prompt_that_turns_out_to_reach_a_tier_is_held_for_at_its_prices(caller: Caller) -> None:
    tiers = [{"above_input_tokens": 50_000, "output": "6"}]
    ModelProvider.objects.filter(model_id="echo").update(
        prices={"input": "0.15", "output": "0.6", "tiers": tiers}, max_output=200_000
    )
    Provider.objects.filter(pk="sandbox").update(dialect="anthropic", auth="x-api-key")
    generation.bump(generation.CATALOG)
    credited(caller, "0.02")
    post(caller, "chat", "hi [[sandbox kb=400 heedless usage=60000,102400]]", stream=True, max_tokens=None)
    settle_all()
    # 0.009 USD for the prompt leave 0.011 for 1,833 tokens.
    assert 1_700 < (RequestLog.objects.get().completion_tokens or 0) <= 1_833
    assert credits_of(caller) > -SLIP
