"""The order of a stream in Anthropic's format, whatever order another format brings its pieces in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    ImageMade,
    ReasoningDelta,
    RefusalDelta,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat import anthropic
from apps.gateway.framing import sse_frames
from apps.kernel.errors import Overloaded
from apps.kernel.usage import Usage
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.property_examples import examples

CHAT = Chat(model="m", messages=[Message(role="user", parts=[Text(text="?")])])
SUMMARY = Summary(usage=Usage(input=3, output=4), cost={}, metadata={})
NOTE = {"type": "url_citation", "url_citation": {"url": "https://w.example", "title": "W"}}
# A stream of this format in which one value is replaced by anything.
RECORDED: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": []}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 2},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 4},
    },
    {"type": "message_stop"},
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(-9, 1e300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("type", "url")), inner, max_size=2),
    max_leaves=4,
)


def written(*events: Event) -> list[dict[str, Any]]:
    """Return the events of the stream that these become."""
    return [json.loads(data) for data in sse_frames(anthropic.write_events([Started(id="m"), *events, SUMMARY], CHAT))]


def content(*events: Event) -> list[dict[str, Any]]:
    """Return the content that a sound stream adds up to."""
    stream = written(*events)
    assert_in_order(stream)
    return list(message_of(stream)["content"])


def test_parallel_calls_whose_arguments_come_by_turns_are_put_one_after_another() -> None:
    events = [ToolCallStarted(index=index, id=f"t{index}", name="f") for index in (0, 1)]
    events += [ToolCallDelta(index=index, arguments=piece) for piece in ('{"a"', ":1", "}") for index in (0, 1)]
    assert [(block["id"], block["input"]) for block in content(*events)] == [("t0", {"a": 1}), ("t1", {"a": 1})]


def test_a_call_streams_as_it_comes_and_ends_as_soon_as_the_next_one_begins() -> None:
    stream = written(
        ToolCallStarted(index=0, id="t0", name="f"),
        ToolCallDelta(index=0, arguments="{}"),
        ToolCallStarted(index=1, id="t1", name="f"),
        ToolCallDelta(index=1, arguments='{"b"'),
        ToolCallDelta(index=1, arguments=":2}"),
    )
    assert [(event["type"], event.get("index")) for event in stream[1:-2]] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
    ]


def test_text_between_calls_keeps_its_place_and_empty_text_makes_no_block() -> None:
    blocks = content(
        TextDelta(text=""),
        ToolCallStarted(index=0, id="t0", name="f"),
        ToolCallDelta(index=0, arguments='{"a":'),
        TextDelta(text="meanwhile"),
        ToolCallDelta(index=0, arguments="1}"),
    )
    assert blocks == [
        {"type": "tool_use", "id": "t0", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "meanwhile"},
    ]


def test_a_foreign_seal_names_its_maker_and_a_refusal_is_a_stop_reason() -> None:
    stream = written(
        ReasoningDelta(text="hm", format="other-v1", id="r"),
        ReasoningDelta(signature="s", format="other-v1", id="r"),
        RefusalDelta(text="No."),
        Finished(reason="stop", native="stop"),
    )
    message = message_of(stream)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s", "format": "other-v1", "id": "r"},
        {"type": "text", "text": "No."},
    ]
    assert message["stop_reason"] == "refusal"


def test_citations_and_pictures_of_other_formats() -> None:
    blocks = content(TextDelta(text="rain"), Annotated(annotation=NOTE), ImageMade(url="data:image/png;base64,aGk="))
    (citation,) = blocks[0]["citations"]
    assert (citation["type"], citation["url"], citation["title"]) == (
        "web_search_result_location",
        "https://w.example",
        "W",
    )
    assert blocks[1] == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def test_silence_is_a_comment_before_the_message_and_a_ping_within() -> None:
    events = [
        Waiting(),
        Started(id="m", prompt_estimate=12),
        TextDelta(text="a"),
        Waiting(),
        TextDelta(text="b"),
        SUMMARY,
    ]
    pieces = list(anthropic.write_events(events, CHAT))
    assert pieces[0] == b": ping\n\n"
    assert pieces[2] == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert json.loads(pieces[1].split(b"\n")[1][6:])["message"]["usage"]["input_tokens"] == 12


def test_nothing_follows_an_error() -> None:
    events = [Started(), TextDelta(text="a"), Failed(error=Overloaded("Too much")), TextDelta(text="b"), SUMMARY]
    last = list(sse_frames(anthropic.write_events(events, CHAT)))[-1]
    assert json.loads(last) == {"type": "error", "error": {"type": "overloaded_error", "message": "Too much"}}


def test_a_complete_answer_does_not_wait_for_the_end_of_its_connection() -> None:
    def dawdling(broken: bool) -> Iterator[bytes]:
        yield from map(msgspec.json.encode, RECORDED)
        if broken:
            raise ConnectionResetError
        yield b""
        raise AssertionError("nobody should ask for more")

    for broken in (False, True):
        assert isinstance(list(anthropic.read_events(dawdling(broken)))[-1], Finished)


pieces = st.one_of(
    st.builds(TextDelta, text=st.text(max_size=3)),
    st.builds(RefusalDelta, text=st.text(max_size=3)),
    st.builds(ReasoningDelta, text=st.text(max_size=3), block=st.integers(0, 1)),
    st.builds(ReasoningDelta, signature=st.just("s"), block=st.integers(0, 1)),
    st.builds(ToolCallStarted, index=st.integers(0, 2), id=st.just("t"), name=st.just("f")),
    st.builds(ToolCallDelta, index=st.integers(0, 2), arguments=st.sampled_from(('{"a":', "1", "}", "{}"))),
    st.just(Annotated(annotation=NOTE)),
    st.just(Waiting()),
)


@given(events=st.lists(pieces, max_size=20))
def test_exactly_one_block_is_open_whatever_comes(events: list[Event]) -> None:
    stream = written(*events)
    assert_in_order(stream)
    texts = [event["delta"].get("text", "") for event in stream if event["type"] == "content_block_delta"]
    assert "".join(texts) == "".join(event.text for event in events if isinstance(event, TextDelta | RefusalDelta))


@settings(max_examples=examples(300))
@given(data=st.data())
def test_no_stream_is_too_strange_to_be_read(data: st.DataObject) -> None:
    stream = json.loads(json.dumps(RECORDED))
    value: Any = stream
    while True:
        at = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        if not isinstance(value[at], dict | list) or not value[at]:
            value[at] = data.draw(ANYTHING)
            break
        value = value[at]
    events = list(anthropic.read_events([msgspec.json.encode(event) for event in stream]))
    assert sum(isinstance(event, Failed) for event in events[:-1]) == 0
    if not isinstance(events[-1], Failed):
        again = [json.loads(frame) for frame in sse_frames(anthropic.write_events([*events, SUMMARY], CHAT))]
        assert_in_order(again)
        anthropic.write_reply(fold(events), SUMMARY, CHAT)
