"""Chats in Cohere's format: `/v2/chat` with the models of every provider format, over HTTP."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cohere.v2.types import V2ChatResponse, V2ChatStreamResponse
from pydantic import TypeAdapter

from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.guardrails_in_force import forbid, guard
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, nothing_happened, settle_all

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ALONE = {"X-No-Fallback": "true"}
EVENTS: TypeAdapter[Any] = TypeAdapter(V2ChatStreamResponse)


@pytest.fixture(params=PLACES)
def wire_format(request: pytest.FixtureRequest, caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Each format of providers; a provider of it is there as `other`."""
    chosen = str(request.param)
    play(caller, chosen, monkeypatch, tmp_path)
    return chosen


def ask(caller: Caller, text: Any = "hello", **fields: Any) -> Any:
    """Ask for a chat answer, of `sandbox/echo` unless `model` says otherwise. `headers` are HTTP headers."""
    headers = {"Authorization": f"Bearer {fields.pop('key', caller.token)}", **fields.pop("headers", {})}
    wire = {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], **fields}
    return caller.client.post("/v2/chat", json.dumps(wire), content_type="application/json", headers=headers)


def events_of(response: Any) -> list[Any]:
    """Return the events of a stream, each as Cohere's client takes it; its end is checked."""
    lines = b"".join(response.streaming_content).decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    events = list(map(json.loads, data[:-1]))
    assert [event["type"] for event in events] == [line[7:] for line in lines if line.startswith("event: ")]
    for event in events:
        EVENTS.validate_python(event)
    return events


def message_of(response: Any, *, stream: bool) -> tuple[dict[str, Any], str]:
    """Return text, plan and calls of an answer, and why it ended, put together as clients do."""
    if not stream:
        body = response.json()
        V2ChatResponse.model_validate(body)
        message = body["message"]
        text = "".join(part.get("text", "") for part in message.get("content", ()))
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        return {"text": text, "plan": message.get("tool_plan", ""), "calls": calls}, body["finish_reason"]
    said: dict[str, Any] = {"text": "", "plan": "", "calls": []}
    events = events_of(response)
    assert [events[0]["type"], events[-1]["type"]] == ["message-start", "message-end"]
    for event in events[1:-1]:
        message = event.get("delta", {}).get("message", {})
        said["text"] += message.get("content", {}).get("text", "")
        said["plan"] += message.get("tool_plan", "")
        if event["type"] == "tool-call-start":
            said["calls"].append((message["tool_calls"]["function"]["name"], ""))
        elif event["type"] == "tool-call-delta":
            name, arguments = said["calls"][event["index"]]
            said["calls"][event["index"]] = (name, arguments + message["tool_calls"]["function"]["arguments"])
    return said, events[-1]["delta"]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
def test_models_of_every_format_answer(caller: Caller, wire_format: str, stream: bool) -> None:
    fields: dict[str, Any] = {"model": f"{OTHER}/echo", "stream": stream, "headers": ALONE, "max_tokens": 200}
    response = ask(caller, "hello", **fields)
    assert response.status_code == 200, response.content
    said, end = message_of(response, stream=stream)
    assert (said, end) == ({"text": "You said: hello", "plan": "", "calls": []}, "COMPLETE")


@pytest.mark.parametrize("stream", [False, True])
def test_models_of_every_format_call_tools_and_read_their_results(
    caller: Caller, wire_format: str, stream: bool
) -> None:
    fields: dict[str, Any] = {"model": f"{OTHER}/tools", "stream": stream, "headers": ALONE, "tools": [WEATHER]}
    question = {"role": "user", "content": "call weather"}
    said, end = message_of(ask(caller, messages=[question], **fields), stream=stream)
    [(name, arguments)] = said["calls"]
    assert (name, json.loads(arguments).keys(), end) == ("weather", {"city"}, "TOOL_CALL")
    assert said["plan"] == ("I will use a tool." if wire_format == "cohere" else "")
    function = {"name": name, "arguments": arguments}
    answer = {
        "role": "assistant",
        "tool_plan": "I ask.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    document = {"type": "document", "document": {"id": "d", "data": {"sky": "Sun"}}}
    results = [{"role": "tool", "tool_call_id": "c1", "content": [document]}]
    said, end = message_of(ask(caller, messages=[question, answer, *results], **fields), stream=stream)
    assert end == "COMPLETE"
    assert said["text"].startswith("weather answered: ")
    assert "Sun" in said["text"]


def test_documents_reach_coheres_models_as_such_and_others_as_text(caller: Caller, wire_format: str) -> None:
    tag = uuid4().hex
    documents = ["Rome is warm.", {"id": "d2", "data": {"title": "Oslo", "degrees": -3}}]
    response = ask(caller, f"where? [[sandbox tag={tag}]]", model=f"{OTHER}/echo", documents=documents, headers=ALONE)
    assert response.status_code == 200, response.content
    [sent] = caller.sent(tag)
    if wire_format == "cohere":
        assert sent["body"]["documents"] == documents
        assert "x-gateway-loss" not in response.headers
        return
    said = json.dumps(sent["body"])
    assert "Rome is warm." in said
    assert "d2\\ntitle: Oslo\\ndegrees: -3" in said
    assert response.headers["x-gateway-loss"] == "documents"
    strict = ask(caller, model=f"{OTHER}/echo", documents=documents, headers={**ALONE, "X-Strict": "true"})
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "documents")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_its_form(caller: Caller, wire_format: str, stream: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    form = {"type": "json_object", "json_schema": schema}
    response = ask(caller, model=f"{OTHER}/json", response_format=form, stream=stream, headers=ALONE)
    said, end = message_of(response, stream=stream)
    assert (json.loads(said["text"]).keys(), end) == ({"city"}, "COMPLETE")


def test_an_answer_is_billed_and_logged_once(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    response = ask(caller, "hi [[sandbox usage=1000,200,300]]", tools=[WEATHER], tool_choice="NONE")
    body = response.json()
    counts = {"input_tokens": 1000, "output_tokens": 200}
    assert body["usage"] == {"cached_tokens": 300, "billed_units": counts, "tokens": counts}
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.status_code, body["id"]) == ("cohere_chat", 200, f"gen-{row.id.hex}")
    assert row.cost > Decimal(0)
    assert row.messages == [{"role": "user", "content": "hi [[sandbox usage=1000,200,300]]"}]
    assert (row.tools, row.tool_choice) == ([WEATHER], "NONE")


def test_thinking_is_a_part_of_the_content(caller: Caller) -> None:
    body = ask(caller, "hi [[sandbox reasoning=2]]").json()
    assert body["message"]["content"] == [
        {"type": "thinking", "thinking": "thought-1 thought-2"},
        {"type": "text", "text": "You said: hi"},
    ]
    events = events_of(ask(caller, "hi [[sandbox reasoning=2]]", stream=True))
    starts = [event["delta"]["message"]["content"] for event in events if event["type"] == "content-start"]
    assert [start["type"] for start in starts] == ["thinking", "text"]
    assert [event["index"] for event in events if event["type"] == "content-end"] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "developer", "content": "?"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "?"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "?"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "system", "content": "?"}], "documents": ["a"]}, "documents"),
        ({"documents": [{"id": "a"}]}, "documents[0].data"),
        ({"documents": [7]}, "documents[0]"),
        ({"tool_choice": "AUTO"}, "tool_choice"),
        ({"tools": [{"type": "code"}]}, "tools[0].type"),
        ({"thinking": {"type": "adaptive"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "token_budget": 0}}, "thinking.token_budget"),
        ({"response_format": {"type": "json_schema"}}, "response_format.type"),
        ({"p": 1.5}, "p"),
        ({"k": -1}, "k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"model": ""}, "model"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(caller: Caller, fields: dict[str, Any], param: str) -> None:
    response = ask(caller, **fields)
    body = response.json()
    assert (response.status_code, body["error"]["param"]) == (400, param)
    assert body["message"].startswith(f"{param}: ")
    assert nothing_happened(caller)


def test_a_hint_that_a_provider_lacks_is_told_under_coheres_name(caller: Caller) -> None:
    fields: dict[str, Any] = {"safety_mode": "STRICT", "max_tokens": 900_000}
    response = ask(caller, **fields)
    assert response.status_code == 200
    assert set(response.headers["x-gateway-loss"].split(", ")) == {"safety_mode", "max_tokens"}
    assert response.json()["message"]["content"] == [{"type": "text", "text": "You said: hello"}]
    strict = ask(caller, headers={"X-Strict": "true", **ALONE}, **fields)
    assert (strict.status_code, strict.json()["error"]["code"]) == (400, "unsupported_feature")


def test_a_wrong_key_is_refused_with_a_message(caller: Caller) -> None:
    response = ask(caller, key="sk-wrong")
    assert response.status_code == 401
    assert response.json()["message"]


@pytest.mark.parametrize("fault", ["cut=2", "error=2", "broken=2"])
def test_a_stream_that_breaks_ends_with_an_error(caller: Caller, fault: str) -> None:
    response = ask(caller, f"one two three [[sandbox {fault}]]", stream=True)
    lines = b"".join(response.streaming_content).decode().splitlines()
    last = json.loads(lines[-2].removeprefix("data: "))
    assert (last["type"], last["delta"]["finish_reason"]) == ("message-end", "ERROR")
    assert last["delta"]["error"] == last["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"messages": [{"role": "user", "content": "of project zanzibar"}]}, "messages[0].content"),
        ({"documents": ["of project zanzibar"]}, "documents[0]"),
        ({"documents": [{"data": {"a": "of project zanzibar"}}]}, "documents[0].data.a"),
    ],
)
def test_a_guardrail_finds_the_text_where_the_client_wrote_it(
    caller: Caller, fields: dict[str, Any], place: str
) -> None:
    guard(caller)
    forbid(caller, "project zanzibar")
    response = ask(caller, **fields)
    assert response.status_code == 400
    assert response.json()["message"].startswith(f"Blocked by the guardrail 'Terms' in {place}: ")


def test_a_guardrail_masks_documents(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "project zanzibar", action="redact")
    tag = uuid4().hex
    response = ask(caller, f"? [[sandbox tag={tag}]]", documents=[{"data": {"a": "of project zanzibar"}}])
    assert response.status_code == 200, response.content
    [sent] = caller.sent(tag)
    assert "zanzibar" not in json.dumps(sent["body"])
    assert "a: of [" in json.dumps(sent["body"])
