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
)
from apps.gateway.canonical.fold import fold
from apps.gateway.dialects import responses

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
    # What tells clients of the format where items begin and end says nothing to others.
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
