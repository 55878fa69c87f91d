"""OpenAI's own client asks for responses over every format: whole, streamed, with tools, schemas, thoughts, errors."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway
from tests.clients.pictures import PIXEL_URL

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
PATCH: Any = {"type": "custom", "name": "patch", "description": "Applies a patch."}
CALLS = 'get_weather({"city": "Zürich"}) and patch({"input": "+ü\\n"})'
ALONE = {"X-No-Fallback": "true"}


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int
    friends: list[str]


@pytest.fixture(params=EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one of every format."""
    chosen: Behind = request.param
    return chosen


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    """The official client, pointed at the gateway."""
    return openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0, default_headers=ALONE)


def test_a_plain_response(client: openai.OpenAI, behind: Behind) -> None:
    response = client.responses.create(
        model=behind.model, input="hello [[sandbox usage=1000,200,300]]", instructions="Be brief."
    )
    assert (response.output_text, response.status, response.object) == ("You said: hello", "completed", "response")
    assert (response.model, response.instructions, response.error) == (behind.model_id, "Be brief.", None)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (1000, 200, 1200)
    assert response.usage.input_tokens_details.cached_tokens == 300


def test_the_stream_helper_adds_up_to_the_plain_answer(client: openai.OpenAI, behind: Behind) -> None:
    asked: Any = {"model": behind.model, "input": "one two three"}
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    said = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(said) == final.output_text == client.responses.create(**asked).output_text


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_tools_are_called_and_their_results_read(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "tools": [WEATHER, PATCH], "include": ["reasoning.encrypted_content"]}
    given: list[Any] = [{"role": "user", "content": CALLS}]
    if streamed:
        with client.responses.stream(input=given, **asked) as stream:
            done = [event for event in stream if event.type == "response.output_item.done"]
            response: Any = stream.get_final_response()
        assert [event.item.type for event in done] == [item.type for item in response.output]
    else:
        response = client.responses.create(input=given, **asked)
    weather, patch = [item for item in response.output if item.type != "reasoning"]
    assert (weather.name, json.loads(weather.arguments)) == ("get_weather", {"city": "Zürich"})
    assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "+ü\n")
    given += response.output
    given.append({"type": "function_call_output", "call_id": weather.call_id, "output": "sunny"})
    given.append({"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "applied"})
    final = client.responses.create(input=given, **asked)
    assert final.output_text == "get_weather answered: sunny; patch answered: applied"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_schema_is_answered_in_its_shape(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "input": "who is 'Ada' of 'Bob'?", "text_format": Person}
    if streamed:
        with client.responses.stream(**asked) as stream:
            for _ in stream:
                pass
            parsed = stream.get_final_response().output_parsed
    else:
        parsed = client.responses.parse(**asked).output_parsed
    assert parsed == Person(name="Ada", age=1, friends=["Bob"])


def test_pictures_are_seen(client: openai.OpenAI, behind: Behind) -> None:
    parts: Any = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PIXEL_URL, "detail": "auto"},
    ]
    response = client.responses.create(model=behind.model, input=[{"role": "user", "content": parts}])
    assert response.output_text == "You said: look (1 image)"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_thoughts_are_shown_and_go_back(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "reasoning": {"effort": "low", "summary": "auto"}}
    if streamed:
        with client.responses.stream(input="why?", **asked) as stream:
            events = list(stream)
            response: Any = stream.get_final_response()
        told = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
        assert "".join(told).startswith("thought-1 thought-2")
    else:
        response = client.responses.create(input="why?", **asked)
    thought = response.output[0]
    assert thought.type == "reasoning"
    assert "".join(part.text for part in thought.summary).startswith("thought-1 thought-2")
    given: Any = [{"role": "user", "content": "why?"}, *response.output, {"role": "user", "content": "really?"}]
    assert client.responses.create(input=given, **asked).output_text == "You said: really?"


def test_an_answer_cut_off_by_its_limit_is_told_so(client: openai.OpenAI, behind: Behind) -> None:
    response = client.responses.create(model=behind.model, input="word " * 40, max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, openai.BadRequestError), (429, openai.RateLimitError), (503, openai.InternalServerError)],
)
def test_a_providers_error_is_the_clients_own(
    client: openai.OpenAI, status: int, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as refused:
        client.responses.create(model="sandbox/echo", input=f"hi [[sandbox status={status}]]")
    assert refused.value.body["message"]


def test_a_stream_that_breaks_is_an_error(client: openai.OpenAI) -> None:
    script = "one two three four [[sandbox cut=middle]]"
    with pytest.raises(openai.APIError):
        list(client.responses.create(model="sandbox/echo", input=script, stream=True))


def test_input_tokens_are_counted(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="sandbox/echo", input="hello there")
    assert (counted.object, counted.input_tokens > 0) == ("response.input_tokens", True)


async def test_the_asynchronous_client(gateway: Gateway) -> None:
    client = openai.AsyncOpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0)
    async with client.responses.stream(model="sandbox/echo", input="hello") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "You said: hello"
    await client.close()
