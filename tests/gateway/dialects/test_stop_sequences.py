"""Stop sequences that are emulated: the same cut wherever the pieces of an answer end, and nothing of a stop in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import StopEmulation, Target
from apps.gateway.canonical.events import (
    Event,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.dialects.adapting.stop_sequences import MAX_CHARACTERS, cut_at_stop
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

CALL = ToolCallStarted(index=0, id="c", name="f")
USAGE = UsageReported(usage=Usage(input=1, output=9))


def cut_of(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Return the rest of a text by the definition, and the sequence that cuts it: the first to be complete, and of
    those the longest."""
    ends = [(at + len(stop), -len(stop)) for stop in stops for at in range(len(text)) if text.startswith(stop, at)]
    if not ends:
        return text, None
    end, negative = min(ends)
    return text[: end + negative], text[end + negative : end]


def pieces(text: str, cuts: list[int]) -> Iterator[str]:
    """Yield a text in pieces."""
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        yield text[start:end]


def run(events: list[Event], *stops: str, streamed: bool = True, choices: int = 1) -> list[Event]:
    """Return what comes through."""
    return list(cut_at_stop(events, StopEmulation(stops, streamed=streamed, choices=choices)))


def text_of(events: list[Event], choice: int = 0) -> str:
    """Return a choice's text."""
    return "".join(event.text for event in events if isinstance(event, TextDelta) and event.choice == choice)


@given(
    text=st.text("abé", max_size=30),
    stops=st.lists(st.text("abé", min_size=1, max_size=5), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 30), max_size=12),
)
def test_the_cut_is_the_same_wherever_pieces_end(text: str, stops: list[str], cuts: list[int]) -> None:
    events: list[Event] = [*(TextDelta(text=piece) for piece in pieces(text, cuts)), Finished(reason="length")]
    through = run(events, *stops)
    left, stopped_by = cut_of(text, stops)
    assert text_of(through) == left
    end = through[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.stop_sequence) == (("length", None) if stopped_by is None else ("stop", stopped_by))
    # As far as it went at each moment, nothing of a stop had been passed on.
    so_far = ""
    for event in through[:-1]:
        so_far += text_of([event])
        assert left.startswith(so_far)


def test_a_stream_ends_with_the_cut_so_that_its_call_does() -> None:
    source = iter([TextDelta(text="one ST"), TextDelta(text="OP two"), TextDelta(text="three"), USAGE])
    through = list(cut_at_stop(source, StopEmulation(("STOP",), streamed=True)))
    assert [type(event) for event in through] == [TextDelta, Finished]
    assert [type(event) for event in source] == [TextDelta, UsageReported]


def test_a_plain_answer_keeps_what_was_counted() -> None:
    through = run([TextDelta(text="one STOP two"), CALL, Finished(reason="tool_calls"), USAGE], "STOP", streamed=False)
    assert [type(event) for event in through] == [TextDelta, Finished, UsageReported]
    assert (text_of(through), through[1]) == (
        "one ",
        Finished(reason="stop", native="stop_sequence", stop_sequence="STOP"),
    )


def test_choices_are_cut_apart_and_the_last_cut_ends_the_call() -> None:
    events: list[Event] = [
        TextDelta(choice=0, text="a STOP"),
        TextDelta(choice=1, text="b"),
        TextDelta(choice=0, text="never"),
        TextDelta(choice=1, text=" STOP"),
        TextDelta(choice=1, text="never"),
    ]
    through = run(events, "STOP", choices=2)
    assert (text_of(through, 0), text_of(through, 1)) == ("a ", "b ")
    assert [event.choice for event in through if isinstance(event, Finished)] == [0, 1]


def test_what_stands_behind_held_text_waits_for_it_in_order() -> None:
    thought = ReasoningDelta(text="hm")
    held: list[Event] = [Started(), TextDelta(text="x ST"), thought, CALL, Finished(reason="tool_calls")]
    assert run(held, "STOP") == [
        Started(),
        TextDelta(text="x "),
        TextDelta(text="ST"),
        thought,
        CALL,
        Finished(reason="tool_calls"),
    ]
    released = [TextDelta(text="ST"), thought, TextDelta(text="AY"), Finished(reason="stop")]
    assert run([*released], "STOP") == [
        TextDelta(text="ST"),
        thought,
        TextDelta(text="AY"),
        Finished(reason="stop"),
    ]
    cut = run([TextDelta(text="ST"), thought, TextDelta(text="OP")], "STOP")
    assert cut == [Finished(reason="stop", native="stop_sequence", stop_sequence="STOP")]


def test_thinking_and_calls_are_never_cut() -> None:
    events: list[Event] = [ReasoningDelta(text="STOP"), CALL, Finished(reason="tool_calls")]
    assert run(events, "STOP") == events


def test_a_model_of_the_responses_format_is_asked_without_stops_and_cut_here() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stop": ["\nObservation:"], "stream": True}
    target = Target(model_name="gpt-5.3-codex", facts={})
    written = json.loads(responses.write_request(openai.read_request(json.dumps(body).encode()), target))
    assert "stop" not in written
    assert (target.rewrites.stop, target.dropped_fields) == (StopEmulation(("\nObservation:",), streamed=True), [])


def test_sequences_that_no_model_has_are_refused_by_name() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stop": "x" * (MAX_CHARACTERS + 1)}
    chat = openai.read_request(json.dumps(body).encode())
    with pytest.raises(InvalidRequest) as refusal:
        responses.write_request(chat, Target(model_name="m", facts={}))
    assert (refusal.value.param, refusal.value.code) == ("stop", "unsupported_feature")


def test_more_sequences_than_a_provider_takes_are_cut_at_here() -> None:
    stops = ["A", "B", "C", "D", "E", "F"]
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "?"}]}
    for written, told in (
        (openai, lambda wire: wire["stop"]),
        (google, lambda wire: wire["generationConfig"]["stopSequences"]),
    ):
        for count in (4, 6):
            asked = {**body, "stop_sequences": stops[:count]}
            target = Target(model_name="m", facts={})
            wire = json.loads(written.write_request(anthropic.read_request(json.dumps(asked).encode()), target))
            assert told(wire) == stops[: min(count, 4 if written is openai else 5)]
            cut_here = target.rewrites.stop
            assert (cut_here and cut_here.sequences) == (None if count == 4 else tuple(stops))
    deaf = Target(model_name="m", facts={"unsupported": ["stop"]})
    asked = {**body, "stop_sequences": stops}
    assert "stop" not in json.loads(openai.write_request(anthropic.read_request(json.dumps(asked).encode()), deaf))
    assert deaf.rewrites.stop is not None
    assert deaf.rewrites.stop.sequences == tuple(stops)
