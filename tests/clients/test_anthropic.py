"""Anthropic's own client, over every format of provider: its accumulator, tool runner, schemas, thinking and errors."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import pytest
from anthropic import beta_async_tool, beta_tool
from pydantic import BaseModel

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway
from tests.clients.pictures import PIXEL

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"name": "get_weather", "input_schema": CITY}
TIME: Any = {"name": "get_time", "input_schema": CITY}
CALLS = 'get_weather({"city": "Zürich"}) and get_time({"city": "Tokyo"})'
# Some models have several providers here: it is the one of the format that has to answer.
ALONE = {"X-No-Fallback": "true"}
# The blocks before a format's tool calls, and the blocks of thinking where it is more than words.
PLANNED = {"cohere": ["thinking"]}
THOUGHT = {"cohere": ["thinking", "thinking"], "responses": ["thinking", "redacted_thinking"]}


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


@pytest.fixture(params=EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])
def behind(request: pytest.FixtureRequest) -> Behind:
    """The provider that answers: one of every format."""
    chosen: Behind = request.param
    return chosen


@pytest.fixture
def client(gateway: Gateway) -> anthropic.Anthropic:
    """The official client, pointed at the gateway."""
    return anthropic.Anthropic(base_url=gateway.url, api_key=gateway.key, max_retries=0, default_headers=ALONE)


def question(content: Any) -> list[Any]:
    """Return the messages of a first question."""
    return [{"role": "user", "content": content}]


def test_the_client_for_vertex_ai_asks_streams_and_counts(gateway: Gateway, behind: Behind) -> None:
    with anthropic.AnthropicVertex(
        base_url=f"{gateway.url}/v1",
        access_token=gateway.key,
        project_id="project",
        region="global",
        max_retries=0,
        default_headers=ALONE,
    ) as client:
        asked: Any = {"model": behind.model, "messages": question("hello")}
        message = client.messages.create(max_tokens=100, **asked)
        assert [block.text for block in message.content if block.type == "text"] == ["You said: hello"]
        with client.messages.stream(max_tokens=100, **asked) as stream:
            assert "".join(stream.text_stream) == "You said: hello"
        assert client.messages.count_tokens(**asked).input_tokens > 0


def test_a_message(client: anthropic.Anthropic, behind: Behind) -> None:
    message = client.messages.create(
        model=behind.model,
        max_tokens=100,
        system="Be brief.",
        messages=question("hello [[sandbox usage=1000,200,300]]"),
    )
    assert [(block.type, block.text) for block in message.content] == [("text", "You said: hello")]
    assert (message.type, message.role, message.model) == ("message", "assistant", behind.model_id)
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (700, 300, 200)


def test_a_streamed_message_adds_up_to_the_plain_one(client: anthropic.Anthropic, behind: Behind) -> None:
    asked: Any = {"model": behind.model, "max_tokens": 100, "messages": question("one [[sandbox usage=1000,200,300]]")}
    with client.messages.stream(**asked) as stream:
        events = list(stream)
        message = stream.get_final_message()
    plain = client.messages.create(**asked)
    kinds = [event.type for event in events if event.type not in {"text", "ping"}]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(event.text for event in events if event.type == "text") == "You said: one"
    assert [block.text for block in message.content] == [block.text for block in plain.content]
    assert (message.stop_reason, message.usage.output_tokens) == (plain.stop_reason, plain.usage.output_tokens)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_loop_of_parallel_tools(client: anthropic.Anthropic, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "max_tokens": 200, "tools": [WEATHER, TIME]}
    if streamed:
        with client.messages.stream(**asked, messages=question(CALLS)) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked, messages=question(CALLS))
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == [*PLANNED.get(behind.format, []), "tool_use", "tool_use"]
    calls = message.content[-2:]
    assert [(call.name, call.input) for call in calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("get_time", {"city": "Tokyo"}),
    ]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"{call.name} is fine", "is_error": place == 1}
        for place, call in enumerate(calls)
    ]
    final = client.messages.create(
        **asked, messages=[*question(CALLS), {"role": "assistant", "content": message.content}, *question(results)]
    )
    assert final.stop_reason == "end_turn"
    assert "get_weather answered: get_weather is fine" in final.content[0].text


def weather_tool(asked: list[str]) -> Any:
    """Return a function that the runner can call, and that notes what it was asked."""

    @beta_tool
    def get_weather(city: str, days: int = 1) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: For how long.
        """
        asked.append(f"{city} {days}")
        return "Sun"

    return get_weather


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_the_tool_runner_runs_to_its_end(client: anthropic.Anthropic, behind: Behind, streamed: bool) -> None:
    asked: list[str] = []
    runner: Any = client.beta.messages.tool_runner(
        model=behind.model,
        max_tokens=1000,
        tools=[weather_tool(asked)],
        messages=question('get_weather({"city": "Rome", "days": 3})'),
        stream=streamed,
    )
    messages = [turn.get_final_message() if streamed else turn for turn in runner]
    assert asked == ["Rome 3"]
    assert [message.stop_reason for message in messages] == ["tool_use", "end_turn"]
    assert messages[-1].content[0].text == "get_weather answered: Sun"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_schema_is_answered_in_its_shape(client: anthropic.Anthropic, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "max_tokens": 100, "messages": question("who is 'Ada'?")}
    if streamed:
        with client.messages.stream(**asked, output_format=Person) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.parse(**asked, output_format=Person)
    assert message.parsed_output == Person(name="Ada", age=1)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_thinking_is_shown_and_taken_back(client: anthropic.Anthropic, behind: Behind, streamed: bool) -> None:
    asked: Any = {
        "model": behind.model,
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [WEATHER],
    }
    first = question('why? get_weather({"city": "Rome"})')
    if streamed:
        with client.messages.stream(**asked, messages=first) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked, messages=first)
    *thinking, call = message.content
    assert [block.type for block in thinking] == THOUGHT.get(behind.format, ["thinking"])
    assert thinking[0].thinking.startswith("thought-1 thought-2")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sun"}
    final = client.messages.create(
        **asked, messages=[*first, {"role": "assistant", "content": message.content}, *question([result])]
    )
    assert final.content[-1].text == "get_weather answered: Sun"


def test_pictures_and_documents_are_seen(client: anthropic.Anthropic, behind: Behind) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    parts = [{"type": "text", "text": "look"}, {"type": "image", "source": picture}]
    message = client.messages.create(model=behind.model, max_tokens=100, messages=question(parts))
    assert message.content[0].text == "You said: look (1 image)"


def test_tokens_are_counted(client: anthropic.Anthropic, behind: Behind) -> None:
    few = client.messages.count_tokens(model=behind.model, messages=question("hello"))
    more = client.messages.count_tokens(
        model=behind.model, messages=question("hello"), system="Be brief.", tools=[WEATHER]
    )
    assert 0 < few.input_tokens < more.input_tokens


def test_a_stop_sequence_ends_the_answer(client: anthropic.Anthropic, behind: Behind) -> None:
    asked: Any = {"messages": question("one STOP two"), "stop_sequences": ["STOP"], "max_tokens": 100}
    message = client.messages.create(model=behind.model, **asked)
    assert message.content[0].text.strip() == "You said: one"


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (503, anthropic.InternalServerError, "overloaded_error"),
    ],
)
def test_a_providers_error_is_the_clients_own(
    client: anthropic.Anthropic, behind: Behind, status: int, error: type[anthropic.APIStatusError], kind: str
) -> None:
    with pytest.raises(error) as refused:
        client.messages.create(model=behind.model, max_tokens=10, messages=question(f"hi [[sandbox status={status}]]"))
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == kind


def test_a_stream_that_breaks_is_an_error(client: anthropic.Anthropic, behind: Behind) -> None:
    asked = question("one two three four [[sandbox cut=middle]]")
    with (
        pytest.raises(anthropic.APIError),
        client.messages.stream(model=behind.model, max_tokens=100, messages=asked) as stream,
    ):
        stream.get_final_message()


def test_strangers_and_strange_models_are_refused(gateway: Gateway, client: anthropic.Anthropic) -> None:
    stranger = anthropic.Anthropic(base_url=gateway.url, api_key="gw_dev_" + "0" * 40, max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as unknown:
        stranger.messages.create(model="sandbox/echo", max_tokens=1, messages=question("hi"))
    assert unknown.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model="no-such-model", max_tokens=1, messages=question("hi"))
    assert "no-such-model" in str(refused.value)
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("no-such-model")


def test_either_kind_of_key_opens_the_door(gateway: Gateway) -> None:
    client = anthropic.Anthropic(base_url=gateway.url, auth_token=gateway.key, max_retries=0)
    message = client.messages.create(model="sandbox/echo", max_tokens=10, messages=question("hi"))
    assert message.content[0].text == "You said: hi"


def test_models_are_listed(client: anthropic.Anthropic) -> None:
    page = client.models.list(limit=1000)
    models = {model.id: model for model in client.models.list()}
    assert page.has_more is False
    assert len(models) == len(page.data)
    claude = models["claude-haiku-4-5"]
    assert (claude.type, claude.display_name) == ("model", "Claude Haiku 4.5")
    assert claude.created_at.year == 2025
    assert client.models.retrieve("claude-haiku-4-5").id == "claude-haiku-4-5"


async def test_the_asynchronous_client(gateway: Gateway, behind: Behind) -> None:
    client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key=gateway.key, max_retries=0, default_headers=ALONE)

    @beta_async_tool
    async def get_time(city: str) -> str:
        """Tell the time in a city."""
        return f"noon in {city}"

    asked: Any = {"model": behind.model, "max_tokens": 100}
    async with client.messages.stream(**asked, messages=question("hello")) as stream:
        assert "".join([text async for text in stream.text_stream]) == "You said: hello"
    runner = client.beta.messages.tool_runner(
        **asked, messages=question('get_time({"city": "Oslo"})'), tools=[get_time]
    )
    final = await runner.until_done()
    assert final.content[0].text == "get_time answered: noon in Oslo"
    await client.close()
