"""Cohere's own client, over every format of provider: chats whole and streamed, tools, forms and errors."""

from __future__ import annotations

import json
from typing import Any

import cohere
import pytest
from cohere.core.api_error import ApiError

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway

pytestmark = pytest.mark.stack

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}


@pytest.fixture(params=EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one of every format."""
    chosen: Behind = request.param
    return chosen


@pytest.fixture
def client(gateway: Gateway) -> cohere.ClientV2:
    """The official client, pointed at the gateway."""
    return cohere.ClientV2(api_key=gateway.key, base_url=gateway.url)


def question(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


def test_a_chat(client: cohere.ClientV2, behind: Behind) -> None:
    asked = question("hello [[sandbox usage=1000,200,300]]")
    answer = client.chat(model=behind.model, messages=asked, max_tokens=400)
    assert answer.finish_reason == "COMPLETE"
    assert answer.message.content is not None
    assert [(part.type, part.text) for part in answer.message.content if part.type == "text"] == [
        ("text", "You said: hello")
    ]
    assert answer.usage is not None
    assert answer.usage.billed_units is not None
    assert (answer.usage.billed_units.input_tokens, answer.usage.billed_units.output_tokens) == (1000, 200)
    assert answer.usage.tokens is not None


def test_a_stream(client: cohere.ClientV2, behind: Behind) -> None:
    events = list(client.chat_stream(model=behind.model, messages=question("one two three"), max_tokens=400))
    kinds = [event.type for event in events if event is not None]
    assert kinds[:2] == ["message-start", "content-start"]
    assert kinds[-2:] == ["content-end", "message-end"]
    said = [event.delta.message.content.text for event in events if event and event.type == "content-delta"]
    assert "".join(said) == "You said: one two three"
    end: Any = events[-1]
    assert end.delta.finish_reason == "COMPLETE"
    assert end.delta.usage.billed_units.output_tokens > 0


def test_tools_are_called_and_answered(client: cohere.ClientV2, behind: Behind) -> None:
    messages = question('call get_weather({"city": "Zürich"})')
    answer = client.chat(model=behind.model, messages=messages, tools=[WEATHER])
    assert answer.finish_reason == "TOOL_CALL"
    assert answer.message.tool_calls is not None
    [call] = answer.message.tool_calls
    assert call.function is not None
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments or "") == {"city": "Zürich"}
    result: Any = {
        "role": "tool",
        "tool_call_id": call.id,
        "content": [{"type": "document", "document": {"data": {"sky": "Sun"}}}],
    }
    again = client.chat(model=behind.model, messages=[*messages, answer.message, result], tools=[WEATHER])
    assert again.message.content is not None
    assert again.finish_reason == "COMPLETE"
    assert "Sun" in "".join(part.text for part in again.message.content if part.type == "text")


def test_tools_are_called_in_a_stream(client: cohere.ClientV2, behind: Behind) -> None:
    messages = question('call get_weather({"city": "Zürich"})')
    events: list[Any] = list(client.chat_stream(model=behind.model, messages=messages, tools=[WEATHER]))
    [start] = [event for event in events if event.type == "tool-call-start"]
    assert start.delta.message.tool_calls.function.name == "get_weather"
    pieces = [event.delta.message.tool_calls.function.arguments for event in events if event.type == "tool-call-delta"]
    assert json.loads("".join(pieces)) == {"city": "Zürich"}
    assert [event.type for event in events].count("tool-call-end") == 1
    assert events[-1].delta.finish_reason == "TOOL_CALL"


def test_an_answer_has_its_form(client: cohere.ClientV2, behind: Behind) -> None:
    form: Any = {"type": "json_object", "json_schema": {**CITY, "additionalProperties": False}}
    answer = client.chat(model=behind.model, messages=question("where? in JSON"), response_format=form)
    assert answer.message.content is not None
    said = "".join(part.text for part in answer.message.content if part.type == "text")
    assert json.loads(said).keys() == {"city"}


def test_errors_have_their_types(client: cohere.ClientV2, gateway: Gateway, behind: Behind) -> None:
    with pytest.raises(cohere.BadRequestError) as refused:
        client.chat(model=behind.model, messages=question("hi"), p=1.5)
    assert refused.value.body["message"] == "p: must be between 0 and 1"
    with pytest.raises(ApiError) as unknown:
        client.chat(model="no-such-model", messages=question("hi"))
    assert unknown.value.status_code in {400, 404}
    stranger = cohere.ClientV2(api_key="wrong", base_url=gateway.url)
    with pytest.raises(cohere.UnauthorizedError):
        stranger.chat(model=behind.model, messages=question("hi"))
