"""A message that arrives whole in `message_start`: a program at the provider called a tool."""

from __future__ import annotations

import json
from typing import Any

from apps.gateway.canonical.events import Event, Failed, Finished, TextDelta, ToolCallDelta, ToolCallStarted, fold
from apps.gateway.dialects.chat import anthropic, openai
from tests.gateway.dialects.test_laws import SUMMARY

CHAT = anthropic.read_request(
    b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Who?"}]}'
)
RESULT = {
    "type": "code_execution_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []},
}
CALL = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": "look",
    "input": {"id": 1.50},
    "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"},
}
TEXT = {"type": "text", "text": "Found: "}
STOP = {"type": "message_stop"}


def start(*content: Any, reason: str | None = "tool_use") -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    usage = {"input_tokens": 7, "output_tokens": 3}
    return {"type": "message_start", "message": {**message, "stop_reason": reason, "usage": usage}}


def read(*events: dict[str, Any]) -> list[Event]:
    return list(anthropic.read_events(iter([json.dumps(event).encode() for event in events])))


def block(index: int, wire: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": wire},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def test_it_is_read_as_the_stream_that_it_would_have_been() -> None:
    events = read(start(TEXT, RESULT, CALL), STOP)
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta(text="Found: ")]
    calls = [event for event in events if isinstance(event, ToolCallStarted)]
    assert [(call.id, call.name) for call in calls] == [("toolu_1", "look")]
    # As the model wrote them.
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == ['{"id": 1.5}']
    assert events[-1] == Finished(reason="tool_calls", native="tool_use")
    [choice] = fold(iter(events)).choices
    assert (choice.text, choice.finish) == ("Found: ", "tool_calls")


def test_clients_of_its_own_format_get_each_block() -> None:
    written = b"".join(anthropic.write_events([*read(start(TEXT, RESULT, CALL), STOP), SUMMARY], CHAT)).decode()
    told = [json.loads(line[6:]) for line in written.splitlines() if line.startswith("data: ")]
    blocks = [one["content_block"] for one in told if one["type"] == "content_block_start"]
    assert [one["type"] for one in blocks] == ["text", "code_execution_tool_result", "tool_use"]
    assert blocks[1] == RESULT
    assert blocks[2]["caller"] == CALL["caller"]
    assert [one["delta"]["stop_reason"] for one in told if one["type"] == "message_delta"] == ["tool_use"]
    message = json.loads(openai.write_reply(fold(iter(read(start(CALL), STOP))), SUMMARY, CHAT))["choices"][0]
    assert (message["message"]["tool_calls"][0]["id"], message["finish_reason"]) == ("toolu_1", "tool_calls")


def test_what_streams_behind_it_is_read_and_nothing_twice() -> None:
    said = {"type": "text_delta", "text": "Done."}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    for index in (0, 2):
        events = read(start(RESULT, CALL, reason=None), *block(index, {"type": "text", "text": ""}, said), end, STOP)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]
        assert events[-1] == Finished(reason="tool_calls", native="end_turn")
    argued = {"type": "input_json_delta", "partial_json": '{"id":1.5}'}
    again = [*block(0, RESULT), *block(1, {**CALL, "input": {}}, argued)]
    events = read(start(RESULT, CALL), *again, *block(2, {"type": "text", "text": ""}, said), STOP)
    assert len([event for event in events if isinstance(event, ToolCallStarted)]) == 1
    assert [event.arguments for event in events if isinstance(event, ToolCallDelta)] == ['{"id": 1.5}']
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]


def test_without_a_reason_for_its_end_it_was_cut_off() -> None:
    assert isinstance(read(start(TEXT, reason=None), STOP)[-1], Failed)
    assert isinstance(read(start(TEXT))[-1], Failed)
