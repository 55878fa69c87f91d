"""Answers of the Responses format that go wrong, or come in another order than usual."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    TextDelta,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat import responses

TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": [TEXT]}


def read(*events: dict[str, Any] | bytes) -> list[Event]:
    """Return what the events of a stream mean."""
    return list(responses.read_events([it if isinstance(it, bytes) else msgspec.json.encode(it) for it in events]))


def completed(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "model": "m", "created_at": 1, "status": "completed", "output": list(items), **fields}
    return {"type": f"response.{response['status']}", "response": response}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": "rate_limit_exceeded"}, 429),
        ({"code": None, "type": "insufficient_quota"}, 429),
        ({"code": "server_error"}, 502),
        ({"code": "a word that nobody knows"}, 502),
        ({"code": "invalid_prompt"}, 400),
        ({"code": "image_too_large"}, 400),
        ({"code": "content_filter"}, 400),
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, 400),
        ({"code": 503}, 503),
        ({"code": ["nonsense"], "type": {}}, 502),
    ],
)
def test_an_error_has_the_status_that_its_word_stands_for(error: dict[str, Any], status: int) -> None:
    told = {"message": "No.", **error}
    for event in (
        {"type": "error", **{name: value for name, value in told.items() if name != "type"}},
        {"type": "error", "error": told},
        {"type": "response.failed", "response": {"status": "failed", "error": told}},
    ):
        if "type" in error and event.get("error") is None and "response" not in event:
            continue
        [failed] = read(event)
        assert isinstance(failed, Failed)
        assert (failed.error.status, failed.error.message) == (status, "No.")
    [plain] = responses.read_reply(msgspec.json.encode({"status": "failed", "output": [], "error": told}))
    assert isinstance(plain, Failed)
    assert plain.error.status == status


def test_what_an_error_may_lack_is_made_up_for() -> None:
    [failed] = read({"type": "response.failed", "response": {"status": "failed", "error": None}})
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.message) == (502, "The provider broke its answer off")
    [plain] = responses.read_reply(b'{"status": "completed", "output": [], "error": "out of order"}')
    assert isinstance(plain, Failed)
    assert plain.error.message == "out of order"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"output": 5}', b'{"status": "in_progress", "output": []}'])
def test_what_is_no_answer_fails(body: bytes) -> None:
    [failed] = responses.read_reply(body)
    assert isinstance(failed, Failed)
    assert failed.error.code == "upstream_broken"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_answer_that_was_broken_off_fails(status: str) -> None:
    *_, failed = responses.read_reply(msgspec.json.encode({"status": status, "output": [MESSAGE]}))
    assert isinstance(failed, Failed)


def test_a_stream_without_an_end_is_cut_off() -> None:
    for end in ((), (b"[DONE]",)):
        *_, failed = read({"type": "response.output_item.done", "output_index": 0, "item": MESSAGE}, *end)
        assert isinstance(failed, Failed)
        assert failed.error.code == "upstream_cut"


def test_silence_is_a_sign_of_life_and_what_follows_the_end_is_not_read() -> None:
    events = read(b"", completed(MESSAGE), {"type": "error", "message": "late"})
    # Events that tell clients of the format where items begin and end say nothing to others.
    assert [event for event in events if not isinstance(event, OpaqueDelta)] == [
        Waiting(),
        Started(id="resp_1", model="m", created=1),
        TextDelta(text="Hi"),
        Finished(reason="stop", native="completed"),
    ]


def test_an_item_that_does_not_stream_is_read_when_it_is_done() -> None:
    thinking = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "So."}],
        "encrypted_content": "sealed",
    }
    events = read(
        {"type": "response.output_item.done", "output_index": 0, "item": thinking},
        {"type": "response.output_item.done", "output_index": 0, "item": thinking},
        completed(thinking),
    )
    assert [event for event in events if isinstance(event, ReasoningDelta)] == [
        ReasoningDelta(text="So.", summary=True, id="rs_1", format="openai-responses-v1", block=0),
        ReasoningDelta(data="sealed", id="rs_1", format="openai-responses-v1", block=1),
    ]


def test_arguments_that_come_before_their_call_wait_for_it() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'}
    delta = {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": '{"a"'}
    reply = fold(read(delta, {"type": "response.output_item.done", "output_index": 0, "item": call}, completed(call)))
    [told] = reply.choices[0].tool_calls
    assert (told.id, told.name, told.arguments) == ("call_1", "f", '{"a":1}')
    assert reply.choices[0].finish == "tool_calls"


def test_calls_and_texts_that_stream_at_once_stay_apart() -> None:
    def delta(index: int, text: str) -> dict[str, Any]:
        return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}

    calls = [
        {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": "f", "arguments": text}
        for at, text in enumerate(('{"a":1}', '{"b":2}'))
    ]
    begun = [
        {"type": "response.output_item.added", "output_index": at, "item": {**call, "arguments": ""}}
        for at, call in enumerate(calls)
    ]
    events = read(*begun, delta(0, '{"a"'), delta(1, '{"b"'), delta(1, ":2}"), delta(0, ":1}"), completed(*calls))
    told = [(call.id, call.arguments) for call in fold(events).choices[0].tool_calls]
    assert told == [("call_0", '{"a":1}'), ("call_1", '{"b":2}')]


def test_an_answer_that_ended_early_for_a_reason_that_nobody_knows_was_cut_off() -> None:
    [*_, last] = read(completed(MESSAGE, status="incomplete", incomplete_details={"reason": "max_tool_calls"}))
    assert last == Finished(reason="length", native="max_tool_calls")


def delta(kind: str, text: str, **numbers: int) -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": 0, "item_id": "msg_1", "delta": text, **numbers}


def said(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations)}


@pytest.mark.parametrize(
    ("streamed", "parts", "texts"),
    [
        # Counted from one while it streams.
        ([("Hi", 1)], ["Hi"], ["Hi"]),
        ([("H", 1), ("i", 1)], ["Hi there"], ["H", "i", " there"]),
        # Two parts that streamed as one, and one that streamed as two.
        ([("Hi ", 0), ("there", 0)], ["Hi ", "there"], ["Hi ", "there"]),
        ([("Hi ", 0), ("there", 1)], ["Hi there"], ["Hi ", "there"]),
        ([("Hi ", 3), ("there", 4)], ["Hi ", "there"], ["Hi ", "there"]),
        # The text that did not stream is added.
        ([("Hi", 0)], ["Hi", " there"], ["Hi", " there"]),
        ([], ["Hi", " there"], ["Hi", " there"]),
        ([("Hi", 0)], ["Hi", "Hi"], ["Hi", "Hi"]),
    ],
)
def test_text_is_not_told_again_where_its_parts_are_counted_otherwise(
    streamed: list[tuple[str, int]], parts: list[str], texts: list[str]
) -> None:
    page = {"type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 2}
    item = {**MESSAGE, "content": [said(part) for part in parts]}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}}
    deltas = [delta("output_text", text, content_index=number) for text, number in streamed]
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    events = read(begun, *deltas, done, completed(item))
    assert [event.text for event in events if isinstance(event, TextDelta)] == texts
    if len(parts) == 1 and streamed:
        note = {
            "type": "response.output_text.annotation.added",
            "output_index": 0,
            "content_index": streamed[0][1],
            "annotation": page,
        }
        cited = {**MESSAGE, "content": [said(parts[0], page)]}
        done = {"type": "response.output_item.done", "output_index": 0, "item": cited}
        events = read(begun, *deltas, note, done, completed(cited))
        if len(streamed) == 1 or streamed[0][1] == streamed[1][1]:
            assert len(fold(iter(events)).choices[0].annotations) == 1


def test_thinking_is_not_told_again_either() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]}
    events = read(
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
        delta("reasoning_summary_text", "Look.", summary_index=1),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        completed(item, MESSAGE),
    )
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["Look."]
