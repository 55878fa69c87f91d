"""Nothing is spent that is not held: streams are held in parts and end where nothing more can be, plain answers are
given the limit that what is left covers, and many at once on modest credits all get a useful part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.billing import balances, holds, reservations
from apps.catalog.models import ModelProvider, Provider
from apps.gateway import policy, settle, worker
from apps.gateway.answer_meter import LEAST_STEP
from apps.kernel import generation
from apps.kernel.money import NANO
from apps.kernel.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.families import post
from tests.upstream import Caller, settle_all

CENT = Decimal("0.01")
# A letter is a quarter of a token here, and at the sandbox.
BIG = "[[sandbox kb=400]]"
# What the estimate of a prompt may be short of the sandbox's count, and one token of rounding, in USD.
SLIP = Decimal("0.00005")


def credited(caller: Caller, credits: Decimal | str | int) -> None:
    """Give the organization credits; its log keeps what requests were like."""
    Organization.objects.filter(pk=caller.organization_id).update(credits=credits, retention_level="metadata")
    valkey().delete(balances.key("organization", caller.organization_id), balances.key("key", caller.key.pk))
    policy.forget_all()


def priced(output: str, **fields: Any) -> None:
    """Give `echo` another price and other fields."""
    prices = {"input": "0.15", "output": output}
    ModelProvider.objects.filter(model_id="echo").update(prices=prices, **fields)
    generation.bump(generation.CATALOG)


def credits_of(caller: Caller) -> Decimal:
    return Organization.objects.get(pk=caller.organization_id).credits


def held(caller: Caller) -> Decimal:
    """Return what is held on the credits, in USD."""
    value = valkey().hget(balances.key("organization", caller.organization_id), "held")
    return Decimal(int(value or 0)) / NANO


def chunks_in(content: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in content.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def events_in(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in content.decode().split("\n") if line.startswith("data: ")]


def warnings_of(metadata: dict[str, Any]) -> list[str]:
    return [one["param"] for one in metadata.get("warnings", [])]


# --- the finding


@pytest.mark.parametrize("stream", [False, True])
def test_a_cent_buys_no_answers_for_a_dollar(caller: Caller, stream: bool) -> None:
    credited(caller, CENT)
    statuses = [post(caller, "chat", f"go on {BIG}", stream=stream, max_tokens=None).status for _ in range(15)]
    settle_all()
    assert statuses[0] == 200
    assert set(statuses) <= {200, 402}
    assert -SLIP < credits_of(caller) < CENT / 2
    assert held(caller) == 0


def opened(caller: Caller, content: str, **fields: Any) -> Iterator[bytes]:
    """Begin a stream at the door that a server uses; it goes on when it is asked for its next piece."""
    response = caller.chat(content, stream=True, **fields)
    assert response.status_code == 200, response.content
    return iter(response._iterator)


def test_streams_side_by_side_spend_no_more_than_there_is(caller: Caller) -> None:
    credited(caller, CENT)
    streams = {number: opened(caller, f"go on {BIG} number {number}") for number in range(12)}
    told: dict[int, list[bytes]] = {number: [] for number in streams}
    while streams:
        for number in list(streams):
            piece = next(streams[number], None)
            if piece is None:
                del streams[number]
            else:
                told[number].append(piece)
        assert held(caller) <= CENT
    assert settle_all() == 12
    assert -SLIP < credits_of(caller) < CENT / 4
    assert held(caller) == 0
    for pieces in told.values():
        *_, last, done = chunks_in(b"".join(pieces))
        assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    # Each came to write something.
    assert all((row.completion_tokens or 0) >= LEAST_STEP for row in RequestLog.objects.all())


@pytest.mark.parametrize("stream", [False, True])
def test_twenty_at_once_on_a_dollar_all_get_a_useful_part_of_a_dear_model(caller: Caller, stream: bool) -> None:
    priced("75", max_output=131_072, context_length=200_000)
    credited(caller, "1")
    if stream:
        streams = [opened(caller, f"number {number} [[sandbox words=200]]") for number in range(20)]
        assert 0 < held(caller) <= 1
        ends = [chunks_in(b"".join(pieces))[-2]["choices"][0]["finish_reason"] for pieces in streams]
        assert ends == ["stop"] * 20
        return
    # All of them are held for at the same time, as if none was answered yet.
    limits: list[int] = []
    for _ in range(20):
        tag = uuid4().hex
        assert post(caller, "chat", f"go on [[sandbox tag={tag} words=50]]", max_tokens=None).status == 200
        limits.append(caller.sent(tag)[0]["body"]["max_tokens"])
        valkey().hset(balances.key("organization", caller.organization_id), "held", sum(limits) * 75_000)
        assert held(caller) <= 1
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > 1_000
    assert limits[-1] >= 150


# --- streams


def test_a_stream_that_fits_its_first_part_costs_no_further_round_trip(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "extend", None)
    assert post(caller, "chat", "hi [[sandbox kb=15]]", stream=True, max_tokens=None).status == 200
    assert post(caller, "chat", "hi [[sandbox kb=60]]", stream=True, max_tokens=5_000).status == 200, "held whole"


def test_a_stream_holds_more_in_growing_steps_and_has_all_of_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, amounts = holds.extend, []

    def extended(*asked: Any) -> holds.Extended:
        amounts.append(extend(*asked).hold.amount_nanos)
        return extend(*asked)

    monkeypatch.setattr(holds, "extend", extended)
    priced("0.6", max_output=200_000)
    *_, last, done = chunks_in(post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None).content)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert warnings_of(last["metadata"]) == []
    # 4,096 tokens at first, twice as many each time, for 102,400.
    assert [round(amount / 600) for amount in amounts] == pytest.approx([8_192, 16_384, 32_768, 65_536, 131_072], abs=9)
    settle_all()
    row = RequestLog.objects.get()
    assert (row.completion_tokens, row.estimated_cost, row.unified_finish_reason) == (102_400, False, "completed")
    assert held(caller) == 0


def test_no_burst_is_passed_on_before_it_is_held_for(caller: Caller) -> None:
    """All of it comes in one piece."""
    credited(caller, CENT)
    answer = post(caller, "chat", "hi [[sandbox kb=400 chunks=1]]", stream=True, max_tokens=None)
    said = "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_in(answer.content) if chunk != "[DONE]"
    )
    assert 40_000 < len(said) < 67_000
    settle_all()
    assert -SLIP < credits_of(caller) < CENT / 100


def test_a_chat_stream_that_money_ends_is_whole_and_says_why(caller: Caller) -> None:
    credited(caller, CENT)
    body = {"stream": True, "max_tokens": None, "stream_options": {"include_usage": True}}
    *chunks, done = chunks_in(post(caller, "chat", f"hi {BIG}", **body).content)
    assert done == "[DONE]"
    end, bill = chunks[-2:]
    assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert warnings_of(bill["metadata"]) == ["max_tokens"]
    (warning,) = bill["metadata"]["warnings"]
    assert warning["message"].startswith("what is left to spend covers no more than about ")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.has_error, row.estimated_cost) == ("length_limit", False, True)
    assert row.routing_metadata["warnings"] == [warning]
    assert row.completion_tokens == bill["usage"]["completion_tokens"]
    assert CENT - row.cost == credits_of(caller)


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("kb=400", ["text"]),
        ("reasoning=60000 words=10", ["thinking"]),
        ("reasoning=20 kb=400", ["thinking", "text"]),
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
    assert [one["param"] for one in row.routing_metadata["warnings"]] == ["max_tokens"]
    assert events[-2]["usage"]["output_tokens"] == row.completion_tokens
    assert -SLIP < credits_of(caller) < CENT / 100


TOOL = {
    "type": "function",
    "function": {"name": "save", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}


def test_arguments_of_calls_are_written_too(caller: Caller) -> None:
    credited(caller, "0.004")
    content = f'save({{"text": "{"word " * 8_000}"}}) [[sandbox chunk=400]]'
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
    post(caller, "chat", f"hi [[sandbox kb=40000 chunk=4000 tag={tag}]]", stream=True, max_tokens=None)
    (sent,) = caller.sent(tag)
    assert sent["outcome"] in {"client_closed", None}
    assert sent["bytesSent"] < 10_000_000


def test_every_answer_of_several_ends(caller: Caller) -> None:
    credited(caller, CENT)
    *chunks, done = chunks_in(post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None, n=3).content)
    ends = {chunk["choices"][0]["index"]: chunk["choices"][0]["finish_reason"] for chunk in chunks}
    assert (ends, done) == ({0: "length", 1: "length", 2: "length"}, "[DONE]")
    settle_all()
    assert credits_of(caller) > -SLIP


def test_a_keys_limit_ends_a_stream_like_credits(caller: Caller) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=CENT)
    policy.forget_all()
    *_, last, done = chunks_in(post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None).content)
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
    assert caller.sent(tag)[0]["body"]["max_tokens"] == 16_000


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
        post(caller, "chat", "hi [[sandbox kb=400 usage=60000,102400]]", stream=True, max_tokens=None).content
    )
    assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    settle_all()
    row = RequestLog.objects.get()
    # 0.009 USD for the prompt, as it was counted, leave 0.001 for 1,667 tokens.
    assert row.prompt_tokens == 60_000
    assert 1_500 < (row.completion_tokens or 0) <= 1_667
    assert credits_of(caller) > -SLIP


# --- plain answers


def test_a_plain_answer_is_given_the_limit_that_is_covered_and_says_so(caller: Caller) -> None:
    credited(caller, CENT)
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox kb=400 tag={tag}]]", max_tokens=None)
    limit = caller.sent(tag)[0]["body"]["max_tokens"]
    # An eighth of a cent's worth, or what is left of the prompt beside it.
    assert 2_000 < limit < 2_084
    body = answer.json()
    assert (body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == ("length", limit)
    assert body["metadata"]["warnings"] == [
        {
            "param": "max_tokens",
            "message": f"what is left to spend covers an answer of {limit} tokens; that is the limit now",
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
    assert 500 < limit < 521
    assert body["usage"]["completion_tokens"] == 4 * limit


def test_the_limit_is_by_the_price_of_who_answers(caller: Caller, backup: str) -> None:
    """A tenth of the backup's tokens can be paid for what is held for the first."""
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
    assert answer.json()["message"].endswith("is left; lower max_tokens or raise what is left")


def test_too_little_for_even_a_short_answer_is_refused(caller: Caller) -> None:
    credited(caller, "0.0001")
    for stream in (False, True):
        answer = post(caller, "chat", "hi", max_tokens=None, stream=stream)
        assert answer.status == 402
        assert "even a short answer may cost" in answer.json()["message"]
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
    credited(caller, "0.02")
    tag = uuid4().hex
    words = "word " * 4_000
    assert post(caller, "chat", f"{words} [[sandbox tag={tag} words=5]]", max_tokens=None).status == 200
    (sent,) = caller.sent(tag)
    assert 1_900 < sent["body"]["max_tokens"] < 1_942


def test_a_stream_whose_thinking_nobody_sees_is_limited_by_what_is_held(caller: Caller) -> None:
    """Of models that do not say what they think, unseen tokens are paid all the same."""
    Provider.objects.filter(pk="sandbox").update(facts={"developer_role": True})
    priced("0.6", reasoning=True, max_output=128_000)
    credited(caller, CENT)
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox kb=400 tag={tag}]]", stream=True, max_tokens=None)
    limit = caller.sent(tag)[0]["body"]["max_tokens"]
    assert 2_000 < limit < 2_084
    last = chunks_in(answer.content)[-2]
    assert (last["choices"][0]["finish_reason"], warnings_of(last["metadata"])) == ("length", ["max_tokens"])
    settle_all()
    assert RequestLog.objects.get().completion_tokens == limit


# --- what goes wrong on the way


def test_an_extension_that_the_store_cannot_answer_lets_the_answer_go_on(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, asked = holds.extend, []

    def away(*words: Any) -> holds.Extended:
        asked.append(words)
        if len(asked) > 1:
            return extend(*words)
        raise RedisConnectionError("away")

    monkeypatch.setattr(holds, "extend", away)
    priced("0.6", max_output=200_000)
    *_, last, done = chunks_in(post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None).content)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    # It is asked again, for what was passed on meanwhile as well.
    assert 2 <= len(asked) <= 8
    settle_all()
    assert held(caller) == 0


def test_an_extension_whose_answer_was_lost_is_given_back(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    extend = holds.extend

    def lost(*words: Any) -> holds.Extended:
        extend(*words)
        raise RedisConnectionError("lost on its way back")

    monkeypatch.setattr(holds, "extend", lost)
    priced("0.6", max_output=200_000)
    assert post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None).status == 200
    assert held(caller) == Decimal(102_400 * 600 + 3 * 150) / NANO or held(caller) < Decimal("0.07")
    settle_all()
    assert held(caller) == 0
    assert reservations.notes_of(worker.name()) == {}


def test_who_dies_after_an_extension_leaves_nothing_held(caller: Caller) -> None:
    priced("0.6", max_output=200_000)
    stream = opened(caller, "hi [[sandbox kb=100 chunk=2000]]")
    for _ in range(30):
        next(stream)
    (identifier,) = reservations.notes_of(worker.name())
    note = reservations.notes_of(worker.name())[identifier]
    assert held(caller) * NANO == int(note.amount) > 8_192 * 600
    # The sweeper finds the note, with all that it has come to hold; the worker's own end finds nothing any more.
    valkey().zadd("workers", {worker.name(): 0})
    assert settle.sweep() == 1
    settle_all()
    assert (held(caller), reservations.notes_of(worker.name())) == (0, {})
    assert b"[DONE]" in b"".join(stream)
    settle_all()
    assert held(caller) == 0
    row = RequestLog.objects.get()
    assert row.pk == UUID(str(identifier))


def test_who_leaves_after_an_extension_holds_what_was_written(caller: Caller) -> None:
    priced("0.6", max_output=200_000)
    stream = opened(caller, "hi [[sandbox kb=100 chunk=2000]]")
    for _ in range(30):
        next(stream)
    before = held(caller)
    stream.close()  # type: ignore[attr-defined]
    assert 0 < held(caller) < before
    settle_all()
    row = RequestLog.objects.get()
    assert (row.canceled, held(caller)) == (True, 0)
    assert 13_000 < (row.completion_tokens or 0) < 16_000


def test_an_answer_from_the_cache_holds_nothing_more(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    project = caller.key.project
    project.caching_enabled, project.cache_duration_seconds = True, 60
    project.save()
    priced("0.6", max_output=200_000)
    first = post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None)
    monkeypatch.setattr(holds, "extend", None)
    second = post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None)
    assert (first.headers["x-gateway-cache"], second.headers["x-gateway-cache"]) == ("miss", "hit")
    assert chunks_in(second.content)[-1] == "[DONE]"


def test_a_request_that_was_let_through_unreserved_is_not_extended(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise RedisConnectionError("away")

    monkeypatch.setattr(reservations, "reserve", away)
    monkeypatch.setattr(holds, "extend", None)
    priced("0.6", max_output=200_000)
    assert chunks_in(post(caller, "chat", f"hi {BIG}", stream=True, max_tokens=None).content)[-1] == "[DONE]"
