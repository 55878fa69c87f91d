"""Real traffic of the Responses format for clients of the same format: answers come out as they were, plain and event
by event, and satisfy OpenAI's types; requests go out as they came in. The recordings are not part of the project;
without them these tests are skipped."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import responses
from apps.gateway.dialects.chat.openai.wire import encode
from apps.gateway.dialects.chat.responses.client.write_reply import response_of as write_response
from apps.gateway.framing import sse_frames
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.chat.responses.test_recordings_responses import (
    HOSTS,
    RECORDINGS,
    SUMMARY,
    events_of,
    exchanges,
    is_streamed,
    response_of,
)

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")

ASKED = responses.read_request(b'{"model": "m", "input": "?"}')
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FACTS = {"developer_role": True, "takes": ["phase", "prompt_cache_breakpoint"]}
# Fields of a request that ask for a stored response, and those that are answered here.
STORED = {"previous_response_id", "conversation", "background"}
OURS = {"model", "stream", "store", "background", "include"}


def bare(value: Any) -> Any:
    """Return a value without what says nothing."""
    if isinstance(value, dict):
        return {name: bare(inner) for name, inner in value.items() if inner not in (None, [], {})}
    return [bare(inner) for inner in value] if isinstance(value, list) else value


def asked_now(exchange: dict[str, Any]) -> bool:
    """Return whether there is an answer, and not one that was asked for in the background."""
    return exchange["status"] == 200 and response_of(exchange)["status"] != "queued"


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_answers_come_out_as_they_were(host: str) -> None:
    counts: Counter[bool] = Counter()
    for exchange in filter(asked_now, exchanges(host)):
        events, response = events_of(exchange), response_of(exchange)
        plain = json.loads(encode(write_response([*events, SUMMARY], ASKED)))
        assert bare(plain["output"]) == bare(response["output"]), exchange["name"]
        assert (plain["status"], plain["object"]) == ("completed", "response")
        told = [json.loads(data) for data in sse_frames(responses.write_events([*events, SUMMARY], ASKED))]
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert told[-1]["response"]["output"] == plain["output"], exchange["name"]
        if host == "api.openai.com":
            Response.model_validate(plain)
            for event in told:
                check_type(event)
        if is_streamed(exchange):
            lines = [json.loads(line[6:]) for line in exchange["text"].splitlines() if line.startswith("data: {")]
            kinds = [line["type"] for line in lines if line["type"] != "response.queued"]
            assert [event["type"] for event in told] == kinds, exchange["name"]
        counts[is_streamed(exchange)] += 1
    assert counts


def check_type(event: dict[str, Any]) -> None:
    """OpenAI's types take an event. OpenAI itself announces a search before it names the query."""
    if event["type"] == "response.output_item.added" and event["item"]["type"] == "web_search_call":
        event = {**event, "item": {"action": {"type": "search"}, **event["item"]}}
    EVENTS.validate_python(event)


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_requests_go_out_as_they_came_in(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges(host):
        request = exchange["request"]
        try:
            chat = responses.read_request(json.dumps(request).encode())
        except InvalidRequest as refusal:
            reason = refusal.param
        else:
            reason = None
        if reason is not None:
            counts[f"refused {reason}"] += 1
            assert reason in STORED or exchange["status"] == 400, reason
            continue
        target = Target(model_name=request["model"], facts=FACTS, dropped_fields=[])
        written = json.loads(responses.write_request(chat, target))
        assert meaning(written) == meaning(request), exchange["name"]
        assert written.get("include", []) == ["reasoning.encrypted_content", *more_included(request)]
        counts["equal"] += 1
    assert counts["equal"]
    with capsys.disabled():
        sys.stdout.write(f"\n{host}: {dict(counts)}")


def more_included(request: dict[str, Any]) -> list[str]:
    """Return what a request wants included beside encrypted reasoning."""
    return [word for word in request.get("include") or () if word != "reasoning.encrypted_content"]


def meaning(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request in one of the ways in which the same can be said."""
    said = {"text": {}, **{name: value for name, value in bare(request).items() if name not in OURS}}
    if isinstance(said["input"], str):
        said["input"] = [{"role": "user", "content": said["input"]}]
    said["input"] = [item for wire in said["input"] for item in items_of(wire)]
    if not said.get("tools"):
        said.pop("tool_choice", None)
        said.pop("parallel_tool_calls", None)
    if said.get("text", {}).get("format") == {"type": "text"}:
        del said["text"]["format"]
    if said.get("parallel_tool_calls") is True:
        del said["parallel_tool_calls"]
    if said.get("truncation") == "disabled":
        del said["truncation"]
    said["tools"] = [plain_tool(tool) for tool in said.get("tools", [])]
    return said


def items_of(wire: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an item without its needless ids; thinking that cannot be opened is no item, nor are empty words."""
    kind = wire.get("type")
    if wire.get("role") == "assistant" and not wire.get("content"):
        return []
    if kind == "reasoning":
        if not (wire.get("encrypted_content") or wire.get("content")):
            return []
        return [{"status": None, **{name: value for name, value in wire.items() if name != "status"}}]
    if kind in (None, "message", "function_call", "function_call_output"):
        wire = {name: value for name, value in wire.items() if name not in ("id", "status")}
    if kind in (None, "message"):
        content = wire.get("content", "")
        if isinstance(content, list) and [set(part) for part in content] == [{"type", "text"}]:
            content = content[0]["text"]
        if wire["role"] == "assistant" and not content:
            return []
        wire = {**{name: value for name, value in wire.items() if name != "type"}, "content": content}
    if kind == "function_call_output" and isinstance(output := wire["output"], list):
        wire["output"] = output[0]["text"] if [set(part) for part in output] == [{"type", "text"}] else output
    return [wire]


def plain_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool; one without parameters takes none."""
    return {"parameters": None, **tool} if tool["type"] != "function" else {**tool, "parameters": bare_schema(tool)}


def bare_schema(tool: dict[str, Any]) -> Any:
    """Return a function's parameters without what says nothing."""
    return {"type": "object", **(tool.get("parameters") or {})}
