"""The events of a streamed message, in the order and the shape that Anthropic's clients expect (section 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.logs.models import RequestLog
from tests.support.anthropic_requests import speak
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.upstream import Caller, settle_all

TOOLS = [
    {"name": name, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
    for name in ("get_weather", "get_time")
]


@pytest.fixture(params=["openai", "anthropic"], autouse=True)
def upstream(request: pytest.FixtureRequest, caller: Caller) -> str:
    """The format that the upstream speaks: each test runs against both."""
    speak(request.param)
    return str(request.param)


def stream(caller: Caller, content: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a streamed answer; each frame has a line for its type and a line of data."""
    body = {
        "model": "sandbox/echo",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        **fields,
    }
    response = caller.client.post(
        "/v1/messages", body, content_type="application/json", headers={"x-api-key": caller.token}
    )
    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    events = []
    for frame in b"".join(response.streaming_content).decode().split("\n\n")[:-1]:
        if frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def test_text_streams_as_the_specification_says(caller: Caller) -> None:
    events = stream(caller, "hi [[sandbox chunks=2 usage=1000,200]]")
    start = events.pop(0)
    assert start["type"] == "message_start"
    message = start["message"]
    assert message.pop("id")
    usage = message.pop("usage")
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] == 0
    assert (
        message.items()
        >= {
            "type": "message",
            "role": "assistant",
            "model": "echo",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }.items()
    )
    end = events[-2]
    assert end["usage"]["input_tokens"] == 1000
    assert end.pop("usage")["output_tokens"] == 200
    assert events == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "You sa"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "id: hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
        {"type": "message_stop"},
    ]


def test_tool_calls_stream_one_block_after_another(caller: Caller) -> None:
    events = stream(caller, "call get_weather and get_time", tools=TOOLS)
    assert_in_order(events)
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [(block["type"], block["name"], block["input"]) for block in starts] == [
        ("tool_use", "get_weather", {}),
        ("tool_use", "get_time", {}),
    ]
    message = message_of(events)
    assert [block["input"] for block in message["content"]] == [{"city": "city"}, {"city": "city"}]
    assert message["stop_reason"] == "tool_use"


def test_thinking_streams_before_the_text(caller: Caller, upstream: str) -> None:
    events = stream(caller, "why?", model="sandbox/reasoner")
    assert_in_order(events)
    thinking, text = message_of(events)["content"]
    assert thinking["type"] == "thinking"
    assert thinking["thinking"]
    assert bool(thinking["signature"]) is (upstream == "anthropic")
    assert text == {"type": "text", "text": "You said: why?"}


def test_an_answer_that_breaks_off_ends_with_an_error_event(caller: Caller) -> None:
    events = stream(caller, "one two three four [[sandbox cut=middle chunks=6]]")
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "api_error"
    assert "message_stop" not in [event["type"] for event in events]
    assert settle_all() == 1
    assert RequestLog.objects.get().unified_finish_reason == "upstream_error"


def test_an_error_before_the_first_content_is_a_plain_answer(caller: Caller) -> None:
    body = {
        "model": "sandbox/down",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }
    response = caller.client.post(
        "/v1/messages", body, content_type="application/json", headers={"x-api-key": caller.token}
    )
    assert (response.status_code, response.json()["type"]) == (503, "error")
