"""Chunks of a stream that differ in their text alone are compared, not read; what they mean must not depend on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.events import Event, Finished, OpaqueDelta, TextDelta
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.openai.provider import read_answer
from apps.gateway.dialects.chat.openai.provider.read_answer import StreamTemplate


def chunk(delta: dict[str, Any], *, finish: Any = None, index: Any = 0, **fields: Any) -> dict[str, Any]:
    choices = [{"index": index, "delta": delta, "finish_reason": finish}]
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **fields}


def said(*texts: str, **fields: Any) -> list[dict[str, Any]]:
    return [chunk({"role": "assistant"}), *(chunk({"content": text}, **fields) for text in texts)]


def frames_of(chunks: Sequence[Any], **spelling: Any) -> list[bytes]:
    return [json.dumps(one, **spelling).encode() for one in chunks] + [b"[DONE]"]


def read(frames: Sequence[bytes], *, repeating: bool = True) -> list[Event]:
    """Return the events of a stream, read with or without looking for what repeats."""
    with pytest.MonkeyPatch.context() as patch:
        if not repeating:
            patch.setattr(StreamTemplate, "text_of", lambda self, message: None)
        return list(openai.read_events(frames))


def texts_of(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the chunks that were read in full."""
    read_in_full: list[bytes] = []
    real = read_answer.read_answer
    monkeypatch.setattr(read_answer, "read_answer", lambda data: read_in_full.append(data) or real(data))
    return read_in_full


def test_what_repeats_is_read_once(reads: list[bytes]) -> None:
    words = ["It ", "is", "", ' "sunny"\n', "\u2600", "id", "x"]
    frames = frames_of([*said(*words, system_fingerprint="fp"), chunk({}, finish="stop", system_fingerprint="fp")])
    assert texts_of(read(frames)) == [word for word in words if word]
    # The beginning, the first text, which brings the fingerprint, the second, from which it is known, and the end.
    assert reads == [frames[0], frames[1], frames[2], frames[-2]]


def test_of_ids_that_change_it_learns_no_more_after_a_while(reads: list[bytes]) -> None:
    frames = frames_of([chunk({"content": f"w{n}"}, id=f"x{n}") for n in range(10)])
    assert texts_of(read(frames)) == [f"w{n}" for n in range(10)]
    assert len(reads) == 10


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param({"content": "b", "refusal": "no"}, ["a", "a", "b"], id="another member"),
        pytest.param({"content": ["b"]}, ["a", "a"], id="no text"),
        pytest.param({"content": None}, ["a", "a"], id="null"),
        pytest.param({"content": 'b"},"x":{"y":"'}, ["a", "a", 'b"},"x":{"y":"'], id="text that looks like JSON"),
    ],
)
def test_what_only_looks_alike_is_read_in_full(last: dict[str, Any], expected: list[str]) -> None:
    frames = frames_of([*said("a", "a"), chunk(last)], separators=(",", ":"))
    events = read(frames)
    assert texts_of(events) == expected
    assert events == read(frames, repeating=False)


def test_bytes_that_go_on_behind_the_text_are_not_taken_for_it() -> None:
    before, after = b'{"choices":[{"index":0,"delta":{"content":', b'},"finish_reason":null}]}'
    inside = b'"b"},"finish_reason":"stop"},{"index":1,"delta":{"content":"c"'
    events = read([before + b'"a"' + after, before + b'"a"' + after, before + inside + after, b"[DONE]"])
    assert texts_of(events) == ["a", "a", "b", "c"]
    assert [event.choice for event in events if isinstance(event, Finished)] == [0, 1]


def test_choices_that_take_turns_are_not_taken_for_one_another() -> None:
    frames = frames_of([chunk({"role": "assistant"}), *(chunk({"content": f"w{n}"}, index=n % 2) for n in range(12))])
    events = [event for event in read(frames) if isinstance(event, TextDelta)]
    assert [(event.choice, event.text) for event in events] == [(n % 2, f"w{n}") for n in range(12)]


def test_what_is_new_beside_the_text_is_not_lost() -> None:
    frames = frames_of([*said("a", "b"), *said("c", service_tier="flex")[1:]])
    assert [e.data for e in read(frames) if isinstance(e, OpaqueDelta)] == [{"service_tier": "flex"}]


TEXTS = st.sampled_from(
    ["", "a", "x", "id", "m", "content", '"', "\\", "\n", "\x00text\x00", "é", "\u2028", "😀", "null"]
)
DELTAS = st.one_of(
    TEXTS.map(lambda text: {"content": text}),
    st.builds(lambda text, thought: {"content": text, "reasoning": thought}, TEXTS, TEXTS),
    st.just({"content": None}),
    st.just({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
)
CHUNKS = st.builds(
    lambda delta, finish, index, more: chunk(delta, finish=finish, index=index, **more),
    DELTAS,
    st.sampled_from([None, None, None, None, "stop", "", "error"]),
    st.sampled_from([0, 0, 0, 1, None]),
    st.sampled_from([{}, {}, {}, {"usage": None}, {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}, {"a": "x"}]),
)
SPELLINGS = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "separators": st.sampled_from([(",", ":"), (", ", ": ")])}
)


@given(st.lists(CHUNKS, max_size=30), SPELLINGS)
def test_it_makes_no_difference_to_what_is_read(chunks: list[dict[str, Any]], spelling: dict[str, Any]) -> None:
    frames = frames_of(chunks, **spelling)
    # A failure is only equal to itself.
    assert list(map(repr, read(frames))) == list(map(repr, read(frames, repeating=False)))
