"""Calls of `/v1/responses` through Django's test client; their answers are checked against OpenAI's types."""

from __future__ import annotations

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.providers_of_every_format import OTHER
from tests.support.upstream import Caller

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "get_time", "parameters": CITY, "strict": False},
    {"type": "custom", "name": "patch", "description": "Applies a patch."},
    {
        "type": "namespace",
        "name": "weather",
        "description": "About the weather.",
        "tools": [{"type": "function", "name": "look", "parameters": CITY, "strict": False}],
    },
]


def ask(caller: Caller, given: Any, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """Ask for a response."""
    body = {"model": f"{OTHER}/echo", "input": given, **fields}
    return post(caller, "/v1/responses", body, headers or {})


def post(caller: Caller, path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    """Post a body with the caller's key."""
    said = {"Authorization": f"Bearer {caller.token}", **headers}
    return caller.client.post(path, body, content_type="application/json", headers=said)


def events_of(response: Any) -> list[dict[str, Any]]:
    """Return the events of a stream, each under its own name, numbered in order, and as OpenAI's types have them."""
    assert response.status_code == 200, response.content
    frames = b"".join(response.streaming_content).decode().strip().split("\n\n")
    told = []
    for frame in frames:
        if frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENTS.validate_python(event)
        told.append(event)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    return told


def answer(caller: Caller, given: Any, *, stream: bool, **fields: Any) -> dict[str, Any]:
    """Return the response object of an answer, whole or as a stream ends with it."""
    response = ask(caller, given, stream=stream, **fields)
    if not stream:
        assert response.status_code == 200, response.content
        whole: dict[str, Any] = response.json()
    else:
        told = events_of(response)
        whole = told[-1]["response"]
        done = {event["output_index"]: event["item"] for event in told if event["type"] == "response.output_item.done"}
        assert [done[index] for index in sorted(done)] == whole["output"]
    Response.model_validate(whole)
    return whole


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])
