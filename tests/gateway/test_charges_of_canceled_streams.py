"""A client that leaves in the middle pays for the written part, in every format: earlier counts are not final."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.catalog.models import ModelProvider
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.events import (
    AudioDelta,
    Event,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.dialects.chat.anthropic.provider import read_answer as anthropic
from apps.gateway.token_estimate import estimate_tokens
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from apps.logs.models import RequestLog
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, settle_all

# 2,000 bytes for each of a hundred events, half a thousand tokens: the part passed on when the client left.
EVENTS, LEFT_AFTER, PIECE = 100, 95, 2_048


def left_at_95_percent(caller: Caller) -> RequestLog:
    """Leave a stream after 95 of a hundred pieces; return its row."""
    script = f"[[sandbox kb={EVENTS * PIECE // 1024} chunk={PIECE} gap=1]]"
    stream = caller.chat(f"go on {script}", model=f"{OTHER}/echo", stream=True, max_tokens=60_000)
    pieces = iter(stream._iterator)
    read = 0
    while read < LEFT_AFTER * PIECE:
        read += next(pieces).count(b"sandbox ") * len("sandbox ")
    stream._iterator.close()
    settle_all()
    return RequestLog.objects.get()


@pytest.mark.parametrize("wire_format", [name for name in PLACES if name != "vertex_openai"])
def test_a_stream_that_is_left_at_95_percent_pays_95_to_100(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path, max_output=60_000)
    row = left_at_95_percent(caller)
    whole = EVENTS * PIECE // 4
    assert (row.canceled, row.unified_finish_reason) == (True, "canceled")
    assert 0.94 * whole <= (row.completion_tokens or 0) <= whole
    prices = ModelProvider.objects.get(provider_id=OTHER, model_id="echo").prices
    paid = (row.prompt_tokens or 0) * Decimal(prices["input"]) + (row.completion_tokens or 0) * Decimal(
        prices["output"]
    )
    assert row.cost == paid / 10**6
    # Google counts as it goes, but for the piece that was just passed on; the others count at their end.
    assert row.estimated_cost is True


# --- what counts, whenever it comes


def used(events: Iterable[Event], *, left: bool = False) -> Usage:
    """Return what an answer used; of one that is `left`, after the last of these events."""

    def all_of_it() -> Iterator[Event]:
        yield from events
        if left:
            yield TextDelta(text="never seen")

    attempts: Any = Mock()
    attempts.latest_candidate.offer.prices = PriceCard(input=Decimal(1), output=Decimal(2))
    attempts.chat.service_tier = attempts.chat.extra = None
    meter = AnswerMeter(attempts, Mock(), prompt_estimate=7)
    watched = meter.count_within_hold(all_of_it())
    for _ in events:
        next(watched)
    if not left:
        assert list(watched) == []
    return meter.used


START = [Started(), UsageReported(usage=Usage(input=25, cache_read=5, output=3))]
TEXT = TextDelta(text="x" * 400)


def test_what_is_counted_before_the_text_is_of_the_prompt_alone() -> None:
    expected = Usage(input=25, cache_read=5, output=100, estimated=True)
    assert used([*START, TEXT], left=True) == expected
    # An answer that ends without any further count is no other.
    assert used([*START, TEXT, Finished(reason="stop")]) == expected


def test_nothing_written_is_what_was_counted() -> None:
    assert used(START, left=True) == Usage(input=25, cache_read=5, output=3)


def test_the_last_count_of_a_whole_answer_stands() -> None:
    last = Usage(input=25, output=90)
    assert used([*START, TEXT, UsageReported(usage=last), Finished(reason="stop")]) == last
    # Some say the last words behind it.
    assert used([*START, TEXT, UsageReported(usage=last), TextDelta(text="abcd"), Finished(reason="stop")]) == last


def test_nothing_counted_at_the_end_is_nothing_and_before_the_text_no_count() -> None:
    nothing = UsageReported(usage=Usage())
    assert used([Started(), TEXT, nothing, Finished(reason="stop")]) == Usage()
    assert used([Started(), nothing, TEXT, UsageReported(usage=Usage(input=9, output=8))]) == Usage(input=9, output=8)


def anthropic_stream(*events: dict[str, Any]) -> list[Event]:
    """Return the events of a stream of Anthropic's."""
    return list(anthropic.read_events(json.dumps(event).encode() for event in events))


def anthropic_start(**fields: Any) -> dict[str, Any]:
    """Return the begin of a message that counts 62 tokens of an answer."""
    message = {"id": "m", "model": "claude", "content": [], "usage": {"input_tokens": 25, "output_tokens": 62}}
    return {"type": "message_start", "message": message | fields}


ANTHROPIC_TEXT = (
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 48}},
    {"type": "content_block_stop", "index": 0},
)


def test_a_count_that_is_told_again_is_the_last_word() -> None:
    """The provider states 62 tokens at the begin and at the end, of which 12 are seen."""
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 62}}
    events = anthropic_stream(anthropic_start(), *ANTHROPIC_TEXT, end, {"type": "message_stop"})
    assert used(events) == Usage(input=25, output=62)


def test_an_end_without_a_count_of_the_answer_leaves_it_estimated() -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": None}}
    events = anthropic_stream(anthropic_start(), *ANTHROPIC_TEXT, end, {"type": "message_stop"})
    assert used(events) == Usage(input=25, output=12, estimated=True)


def test_the_counts_of_a_message_that_comes_whole_are_the_last_word() -> None:
    """Its begin says why it has ended already, and no other counts follow."""
    events = anthropic_stream(anthropic_start(stop_reason="end_turn"), *ANTHROPIC_TEXT, {"type": "message_stop"})
    assert used(events) == Usage(input=25, output=62)


def test_to_counts_in_the_middle_comes_what_was_written_since() -> None:
    so_far = UsageReported(usage=Usage(input=25, output=80, reasoning=9))
    expected = Usage(input=25, output=180, reasoning=9, estimated=True)
    assert used([*START, TEXT, so_far, TEXT], left=True) == expected
    assert used([*START, TEXT, so_far], left=True) == so_far.usage


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(text="abcdefgh"),
        ReasoningDelta(text="abcdefgh"),
        RefusalDelta(text="abcdefgh"),
        ToolCallDelta(index=0, arguments="abcdefgh"),
        ToolCallStarted(index=0, id="call", name="abcdefgh"),
        AudioDelta(transcript="abcdefgh"),
        AudioDelta(data="A" * 3_200),
        OpaqueDelta(dialect="anthropic", of="stream", data={"delta": {"partial_json": "abcdefgh"}}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_everything_that_is_written_counts(event: Event) -> None:
    assert used([*START, event], left=True).output == 2


@given(st.lists(st.text(max_size=30), max_size=10), st.integers(0, 10))
def test_an_estimate_never_counts_anything_twice(texts: list[str], counted_after: int) -> None:
    events: list[Event] = [TextDelta(text=text) for text in texts]
    whole = estimate_tokens("".join(texts))
    before = estimate_tokens("".join(texts[:counted_after]))
    events.insert(counted_after, UsageReported(usage=Usage(input=1, output=before)))
    assert whole <= used(events, left=True).output <= whole + 1
