"""Who leaves in the middle pays what was written, in every format: counts that come before the end are no last word."""

from __future__ import annotations

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
from apps.gateway.token_estimate import estimate_tokens
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from apps.logs.models import RequestLog
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, settle_all

# 2,000 bytes for each of a hundred events, half a thousand tokens: what was passed on when the client left.
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
    attempts.latest.offer.prices = PriceCard(input=Decimal(1), output=Decimal(2))
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
