"""pydantic-ai's agents over OpenAI's and Anthropic's client and every format of provider."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelHTTPError, ModelSettings, NativeOutput, ToolOutput
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.gateway import Behind, Gateway
from tests.clients.pictures import PIXEL

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


@pytest.fixture(params=["openai", "anthropic"])
def client(request: pytest.FixtureRequest) -> str:
    """Which of the two clients asks."""
    return str(request.param)


@pytest.fixture
def model(gateway: Gateway, behind: Behind, client: str) -> Model[Any]:
    """The model behind the gateway, asked in the client's format."""
    if client == "openai":
        return OpenAIChatModel(behind.model, provider=OpenAIProvider(base_url=gateway.openai_url, api_key=gateway.key))
    return AnthropicModel(behind.model, provider=AnthropicProvider(base_url=gateway.url, api_key=gateway.key))


def thinking(client: str) -> ModelSettings:
    """Return the settings that ask for thoughts."""
    if client == "openai":
        return OpenAIChatModelSettings(openai_reasoning_effort="low")
    return AnthropicModelSettings(anthropic_thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=4000)


async def test_an_agent_answers_and_remembers(model: Model[Any], behind: Behind) -> None:
    agent = Agent(model, system_prompt="Be brief.")
    first = await agent.run("hello [[sandbox usage=1000,200,300]]")
    assert first.output == "You said: hello"
    usage = first.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (1000, 200, 300)
    response = first.all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert (response.model_name, response.finish_reason) == (behind.model_id, "stop")
    second = await agent.run("and you?", message_history=first.all_messages())
    assert second.output == "You said: and you?"
    assert len(second.all_messages()) == 4


async def test_an_agent_uses_its_tools(model: Model[Any]) -> None:
    agent = Agent(model)
    asked: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        asked.append(city)
        return "Sun"

    @agent.tool_plain
    def get_time(city: str) -> str:
        asked.append(city)
        return "Noon"

    result = await agent.run('get_weather({"city": "Zürich"}) and get_time({"city": "Tokyo"})')
    assert sorted(asked) == ["Tokyo", "Zürich"]
    assert result.output == "get_weather answered: Sun; get_time answered: Noon"


@pytest.mark.parametrize("form", [ToolOutput, NativeOutput], ids=["tool", "native"])
async def test_a_structured_answer(model: Model[Any], client: str, form: Any) -> None:
    if client == "anthropic" and form is NativeOutput:
        # pydantic-ai takes from a model's name whether it can, and knows none with a provider before it.
        model = AnthropicModel(
            model.model_name, provider=model._provider, profile={"supports_json_schema_output": True}
        )
    result = await Agent(model, output_type=form(Person)).run("who is 'Ada'?")
    assert result.output == Person(name="Ada", age=1)


async def test_a_streamed_answer(model: Model[Any]) -> None:
    async with Agent(model).run_stream("one two three [[sandbox chunks=4]]") as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        assert "".join(texts) == "You said: one two three"
        assert len(texts) > 1
        assert result.usage.output_tokens > 0


async def test_a_streamed_run_with_tools(model: Model[Any]) -> None:
    agent = Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return f"Sun over {city}"

    kinds: list[str] = []
    async with agent.iter('get_weather({"city": "Rome"})') as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    kinds += [type(event.delta).__name__ async for event in stream if isinstance(event, PartDeltaEvent)]
    assert run.result is not None
    assert run.result.output == "get_weather answered: Sun over Rome"
    assert {"ToolCallPartDelta", "TextPartDelta"} <= set(kinds)


async def test_thoughts_are_parts_and_are_taken_back(model: Model[Any], client: str) -> None:
    agent = Agent(model, model_settings=thinking(client))

    @agent.tool_plain
    def get_weather(city: str) -> str:
        return f"Sun over {city}"

    result = await agent.run('why? get_weather({"city": "Rome"})')
    (_, called, _, answered) = result.all_messages()
    assert [type(part) for part in called.parts] == [ThinkingPart, ToolCallPart]
    assert [type(part) for part in answered.parts][-1] is TextPart
    thought = called.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert thought.content.startswith("thought-1 thought-2")
    assert result.output == "get_weather answered: Sun over Rome"


async def test_a_picture_is_seen(model: Model[Any]) -> None:
    result = await Agent(model).run(["look", BinaryContent(PIXEL, media_type="image/png")])
    assert result.output == "You said: look (1 image)"


async def test_an_error_is_a_http_error_of_the_model(model: Model[Any]) -> None:
    with pytest.raises(ModelHTTPError) as refused:
        await Agent(model).run("hi [[sandbox status=400]]")
    assert refused.value.status_code == 400
