"""Ollama's own client over every format of provider: chats, streams, tools, schemas, images, thinking, errors."""

from __future__ import annotations

import json

import ollama
import pytest
from pydantic import BaseModel

from apps.sandbox.generated_media import vector_of
from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway
from tests.clients.pictures import PIXEL

pytestmark = pytest.mark.stack

CALLS = 'get_weather({"city": "Zürich"}) and get_time({"city": "Tokyo"})'
# Some models have several providers here: it is the one of the format that has to answer.
ALONE = {"X-No-Fallback": "true"}
over_every_format = pytest.mark.parametrize("behind", EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


@pytest.fixture
def client(gateway: Gateway) -> ollama.Client:
    """The official client, pointed at the gateway."""
    return ollama.Client(host=gateway.url, headers={"Authorization": f"Bearer {gateway.key}", **ALONE})


def get_weather(city: str) -> str:
    """Tell the weather in a city.

    Args:
        city: The city.
    """
    return f"Sun in {city}"


def get_time(city: str) -> str:
    """Tell the time in a city.

    Args:
        city: The city.
    """
    return f"noon in {city}"


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@over_every_format
def test_an_answer_and_its_stream(client: ollama.Client, behind: Behind) -> None:
    question = asked("one two three [[sandbox chunks=3 usage=1000,200]]")
    answer = client.chat(model=behind.model, messages=question, options={"temperature": 0.5, "num_predict": 400})
    assert (answer.message.role, answer.message.content) == ("assistant", "You said: one two three")
    assert (answer.model, answer.done, answer.done_reason) == (behind.model_id, True, "stop")
    assert (answer.prompt_eval_count, answer.eval_count) == (1000, 200)
    *pieces, last = client.chat(model=behind.model, messages=question, stream=True)
    assert len(pieces) > 1
    assert "".join(piece.message.content or "" for piece in pieces) == "You said: one two three"
    assert (last.done, last.done_reason, last.eval_count) == (True, "stop", 200)


@over_every_format
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_tools_are_called_and_their_results_read(client: ollama.Client, behind: Behind, streamed: bool) -> None:
    tools = [get_weather, get_time]
    messages: list[object] = [*asked(CALLS)]
    if streamed:
        said = [piece.message for piece in client.chat(behind.model, messages, tools=tools, stream=True)]
    else:
        said = [client.chat(behind.model, messages, tools=tools).message]
    calls = [call for message in said for call in message.tool_calls or ()]
    assert [(call.function.name, dict(call.function.arguments)) for call in calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("get_time", {"city": "Tokyo"}),
    ]
    messages.append(ollama.Message(role="assistant", tool_calls=calls))
    known = {"get_weather": get_weather, "get_time": get_time}
    for call in calls:
        result = known[call.function.name](**call.function.arguments)
        messages.append({"role": "tool", "content": result, "tool_name": call.function.name})
    answer = client.chat(behind.model, messages, tools=tools)
    assert "Sun in Zürich" in (answer.message.content or "")


def test_a_schema_is_kept(client: ollama.Client, behind: Behind) -> None:
    answer = client.chat(behind.model, asked("Who?"), format=Person.model_json_schema())
    assert isinstance(Person.model_validate_json(answer.message.content or ""), Person)
    loose = client.chat(behind.model, asked("Who? Answer in JSON."), format="json")
    assert isinstance(json.loads(loose.message.content or ""), dict)


def test_a_prompt_with_an_image_is_answered(client: ollama.Client, behind: Behind) -> None:
    answer = client.generate(behind.model, "hello", system="Be brief.", images=[PIXEL])
    assert (answer.response or "").startswith("You said: hello")
    pieces = list(client.generate(behind.model, "one two", stream=True))
    assert "".join(piece.response or "" for piece in pieces) == "You said: one two"
    assert pieces[-1].done


def test_thinking_is_shown(client: ollama.Client) -> None:
    answer = client.chat("sandbox/reasoner", asked("why?"), think=True)
    assert answer.message.thinking
    silent = client.chat("sandbox/reasoner", asked("why?"), think=False)
    assert not silent.message.thinking


def test_vectors(client: ollama.Client) -> None:
    answer = client.embed("sandbox/embedder", ["a cat", "a dog"])
    assert [list(vector) for vector in answer.embeddings] == [list(vector_of(text, 8)) for text in ("a cat", "a dog")]
    assert list(client.embeddings("sandbox/embedder", "a cat").embedding) == list(vector_of("a cat", 8))


def test_models_are_listed_and_shown(client: ollama.Client) -> None:
    names = {model.model for model in client.list().models}
    assert {"gpt-5-mini", "claude-haiku-4-5", "embedder"} <= names
    shown = client.show("claude-haiku-4-5")
    assert {"completion", "tools", "vision"} <= set(shown.capabilities or ())
    assert shown.details is not None
    assert shown.modelinfo is not None
    assert shown.modelinfo[f"{shown.details.family}.context_length"] > 100_000
    assert list(client.ps().models) == []


def test_the_environment_is_enough(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", gateway.url)
    monkeypatch.setenv("OLLAMA_API_KEY", gateway.key)
    assert ollama.Client().chat("sandbox/echo", asked("hi")).message.content == "You said: hi"


def test_errors_are_the_clients_own(gateway: Gateway, client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as missing:
        client.chat("no-such-model", asked("?"))
    assert missing.value.status_code == 404
    stranger = ollama.Client(host=gateway.url, headers={"Authorization": "Bearer wrong"})
    with pytest.raises(ollama.ResponseError, match="Missing or invalid API key") as refused:
        stranger.chat("sandbox/echo", asked("?"))
    assert refused.value.status_code == 401
    with pytest.raises(ollama.ResponseError):
        list(client.chat("sandbox/echo", asked("one two three four [[sandbox cut=middle]]"), stream=True))
    with pytest.raises(ollama.ResponseError, match="There is nothing at this path"):
        client.pull("gpt-5-mini")
