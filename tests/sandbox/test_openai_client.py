"""OpenAI's own client against the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from tests.sandbox.conftest import TOKEN, Upstream

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


class Person(BaseModel):
    """The shape of a structured answer."""

    name: str
    age: int
    friends: list[str]


@pytest.fixture
def client(upstream: Upstream) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


def user(content: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": content}]


def test_plain(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="echo", messages=user("hello"))
    assert reply.choices[0].message.content == "You said: hello"
    assert reply.usage
    assert reply.usage.total_tokens == 6


def test_streamed(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="echo", messages=user("hello there"), stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "You said: hello there"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage
    assert chunks[-1].usage.total_tokens == 9


def test_tools_there_and_back(client: openai.OpenAI) -> None:
    messages = user("call get_weather")
    message = client.chat.completions.create(model="tools", messages=messages, tools=[WEATHER]).choices[0].message
    assert message.tool_calls
    [call] = message.tool_calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"city"}')
    messages += [
        {
            "role": "assistant",
            "tool_calls": [{"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    last = client.chat.completions.create(model="tools", messages=messages, tools=[WEATHER])
    assert last.choices[0].message.content == "get_weather answered: sunny"


def test_tools_streamed(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tools", messages=user("call get_weather"), tools=[WEATHER]) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    assert choice.message.tool_calls[0].function.arguments == '{"city":"city"}'


def test_structured_answers(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(model="json", messages=user("who?"), response_format=Person)
    assert reply.choices[0].message.parsed == Person(name="name", age=1, friends=["friends"])


def test_errors_are_the_client_s_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="echo:status=429:retry-after=3", messages=user("hello"))
    assert limited.value.response.headers["retry-after"] == "3"
    with pytest.raises(openai.APIError, match="Sorry about that"):
        list(client.chat.completions.create(model="echo:error=2", messages=user("hello"), stream=True))
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="invalid").chat.completions.create(model="echo", messages=user("hello"))
    assert [model.id for model in client.models.list()][:2] == ["echo", "echo-fast"]
