"""Frameworks in the modes that ask for responses: pydantic-ai's `openai:`, LangChain's, OpenAI's Agents SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.messages import ModelResponse, ThinkingPart
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients import npm, pypi
from tests.clients.gateway import Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop"), pytest.mark.timeout(600)]

AGENTS_PROGRAM = """
import asyncio, json, os
from pydantic import BaseModel
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)

class Person(BaseModel):
    name: str
    age: int

@function_tool
def look(city: str) -> str:
    return f"{city} is fine"

async def main() -> None:
    model = OpenAIResponsesModel(model=os.environ["MODEL"], openai_client=AsyncOpenAI())
    run = RunConfig(model=model)
    plain = await Runner.run(Agent(name="a", instructions="Be brief."), "hello", run_config=run)
    helper = Agent(name="b", tools=[look])
    loop = await Runner.run(helper, 'look({"city": "Bern"})', run_config=run)
    live = Runner.run_streamed(helper, 'look({"city": "Bern"})', run_config=run)
    kinds = [event.type async for event in live.stream_events()]
    form = await Runner.run(Agent(name="c", output_type=Person), "who is 'Ada'?", run_config=run)
    print(json.dumps({
        "plain": plain.final_output, "loop": loop.final_output, "live": live.final_output,
        "streamed": "raw_response_event" in kinds, "form": form.final_output.model_dump(),
    }))

asyncio.run(main())
"""


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


@pytest.fixture
def model(gateway: Gateway, behind: Behind) -> OpenAIResponsesModel:
    """pydantic-ai's model for responses, pointed at the gateway."""
    provider = OpenAIProvider(base_url=gateway.openai_url, api_key=gateway.key)
    return OpenAIResponsesModel(behind.model, provider=provider)


async def test_pydantic_ai_answers_calls_tools_and_keeps_its_thoughts(model: OpenAIResponsesModel) -> None:
    settings = OpenAIResponsesModelSettings(openai_reasoning_effort="low", openai_reasoning_summary="auto")
    agent = Agent(model, system_prompt="Be brief.", model_settings=settings)

    @agent.tool_plain
    def look(city: str) -> str:
        return f"{city} is fine"

    first = await agent.run('look({"city": "Bern"})')
    assert first.output == "look answered: Bern is fine"
    response = first.all_messages()[1]
    assert isinstance(response, ModelResponse)
    assert any(isinstance(part, ThinkingPart) for part in response.parts)
    second = await agent.run("and you?", message_history=first.all_messages())
    assert second.output == "You said: and you?"


async def test_pydantic_ai_streams_and_keeps_a_form(model: OpenAIResponsesModel) -> None:
    async with Agent(model).run_stream("one two three") as stream:
        assert await stream.get_output() == "You said: one two three"
    form = await Agent(model, output_type=NativeOutput(Person)).run("who is 'Ada'?")
    assert form.output == Person(name="Ada", age=1)


def langchain(gateway: Gateway, behind: Behind, **fields: Any) -> ChatOpenAI:
    """Return LangChain's model in responses mode."""
    return ChatOpenAI(
        model=behind.model, base_url=gateway.openai_url, api_key=gateway.key, use_responses_api=True, **fields
    )


def test_langchain_answers_streams_and_keeps_a_form(gateway: Gateway, behind: Behind) -> None:
    model = langchain(gateway, behind)
    answer = model.invoke("hello [[sandbox usage=1000,200,300]]")
    assert answer.text == "You said: hello"
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (1000, 200)
    assert "".join(chunk.text for chunk in model.stream("one two three")) == "You said: one two three"
    assert model.with_structured_output(Person).invoke("who is 'Ada'?") == Person(name="Ada", age=1)


def test_langchain_calls_tools(gateway: Gateway, behind: Behind) -> None:
    def look(city: str) -> str:
        """Look at the weather."""
        return f"{city} is fine"

    model = langchain(gateway, behind).bind_tools([look])
    question = HumanMessage('look({"city": "Bern"})')
    answer = model.invoke([question])
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("look", {"city": "Bern"})
    result = ToolMessage(look(**call["args"]), tool_call_id=call["id"])
    assert model.invoke([question, answer, result]).text == "look answered: Bern is fine"


@pytest.mark.agents
def test_the_agents_sdk_does_a_task(
    gateway: Gateway, behind: Behind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = pypi.installed(pypi.OPENAI_AGENTS, request.config)
    program = tmp_path / "program.py"
    program.write_text(AGENTS_PROGRAM)
    said = npm.run(
        [python, program],
        home=tmp_path,
        folder=tmp_path,
        OPENAI_BASE_URL=gateway.openai_url,
        OPENAI_API_KEY=gateway.key,
        MODEL=behind.model,
    )
    assert json.loads(said.splitlines()[-1]) == {
        "plain": "You said: hello",
        "loop": "look answered: Bern is fine",
        "live": "look answered: Bern is fine",
        "streamed": True,
        "form": {"name": "Ada", "age": 1},
    }
