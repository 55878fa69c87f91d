"""Google's own client, over every format of provider: whole, streamed, chats, functions, schemas, thoughts, errors."""

from __future__ import annotations

from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway
from tests.clients.pictures import PIXEL

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CALLS = 'get_weather({"city": "Zürich"}) and get_time({"city": "Tokyo"})'
# Some models have several providers here: it is the one of the format that has to answer.
ALONE = {"X-No-Fallback": "true"}
over_every_format = pytest.mark.parametrize("behind", EVERY_FORMAT, ids=[behind.format for behind in EVERY_FORMAT])


class Person(BaseModel):
    """The schema of a structured answer."""

    name: str
    age: int


@pytest.fixture
def client(gateway: Gateway) -> genai.Client:
    """The official client, pointed at the gateway."""
    return client_of(gateway, gateway.key)


def client_of(gateway: Gateway, key: str) -> genai.Client:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=gateway.url, headers=ALONE))


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"Sun in {city}"


def get_time(city: str) -> dict[str, str]:
    """Tell the time in a city."""
    return {"time": f"noon in {city}"}


@over_every_format
def test_an_answer(client: genai.Client, behind: Behind) -> None:
    answer = client.models.generate_content(
        model=behind.model,
        contents="hello [[sandbox usage=1000,200,300]]",
        config={"system_instruction": "Be brief.", "temperature": 0.5, "max_output_tokens": 400},
    )
    assert answer.text == "You said: hello"
    assert (answer.model_version, bool(answer.response_id)) == (behind.model_id, True)
    (candidate,) = answer.candidates or []
    assert candidate.finish_reason is types.FinishReason.STOP
    usage = answer.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (1000, 300)
    assert (usage.candidates_token_count, usage.total_token_count) == (200, 1200)


def test_a_stream_adds_up_to_the_plain_answer(client: genai.Client, behind: Behind) -> None:
    asked: Any = {"model": behind.model, "contents": "one two three [[sandbox chunks=3 usage=1000,200]]"}
    chunks = list(client.models.generate_content_stream(**asked))
    plain = client.models.generate_content(**asked)
    assert len(chunks) > 2
    assert "".join(chunk.text or "" for chunk in chunks) == plain.text == "You said: one two three"
    last, usage = chunks[-1], plain.usage_metadata
    assert last.candidates is not None
    assert usage is not None
    assert last.usage_metadata is not None
    assert last.candidates[0].finish_reason is types.FinishReason.STOP
    assert last.usage_metadata.total_token_count == usage.total_token_count == 1200
    assert {chunk.model_version for chunk in chunks} == {behind.model_id}


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_chat_remembers(client: genai.Client, behind: Behind, streamed: bool) -> None:
    chat = client.chats.create(model=behind.model)
    for words in ("one", "two"):
        if streamed:
            said = "".join(chunk.text or "" for chunk in chat.send_message_stream(words))
        else:
            said = chat.send_message(words).text or ""
        assert said == f"You said: {words}"
    roles = [content.role for content in chat.get_history(curated=True)]
    assert roles[:2] == ["user", "model"]
    assert roles.count("user") == 2


@over_every_format
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_functions_are_called_automatically(client: genai.Client, behind: Behind, streamed: bool) -> None:
    chat = client.chats.create(model=behind.model, config={"tools": [get_weather, get_time]})
    if streamed:
        said = "".join(chunk.text or "" for chunk in chat.send_message_stream(CALLS))
    else:
        said = chat.send_message(CALLS).text or ""
    assert "get_weather answered: Sun in Zürich" in said


@over_every_format
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_thinking_is_shown_and_taken_back(client: genai.Client, behind: Behind, streamed: bool) -> None:
    declared = types.FunctionDeclaration(
        name="get_weather",
        parameters=types.Schema(type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}),
    )
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=2000),
        max_output_tokens=4000,
    )
    first = types.UserContent('why? get_weather({"city": "Rome"})')
    asked: Any = {"model": behind.model, "config": config}
    if streamed:
        chunks = list(client.models.generate_content_stream(**asked, contents=[first]))
        parts = [part for chunk in chunks for candidate in chunk.candidates or [] for part in candidate.content.parts]
        thoughts = "".join(part.text or "" for part in parts if part.thought)
    else:
        answer = client.models.generate_content(**asked, contents=[first])
        parts = answer.candidates[0].content.parts
        thoughts = "".join(part.text or "" for part in parts if part.thought)
    assert thoughts.startswith("thought-1 thought-2")
    (call,) = [part.function_call for part in parts if part.function_call]
    assert (call.name, call.args) == ("get_weather", {"city": "Rome"})
    result = types.Part.from_function_response(name="get_weather", response={"output": "Sun"})
    result.function_response.id = call.id
    for kept in (parts, [part for part in parts if not part.thought]):
        contents = [first, types.ModelContent(kept), types.UserContent([result])]
        final = client.models.generate_content(**asked, contents=contents)
        assert final.text == "get_weather answered: Sun"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_schema_is_answered_in_its_shape(client: genai.Client, behind: Behind, streamed: bool) -> None:
    asked: Any = {
        "model": behind.model,
        "contents": "who is 'Ada'?",
        "config": {"response_mime_type": "application/json", "response_schema": Person},
    }
    if streamed:
        text = "".join(chunk.text or "" for chunk in client.models.generate_content_stream(**asked))
        assert Person.model_validate_json(text) == Person(name="Ada", age=1)
    else:
        assert client.models.generate_content(**asked).parsed == Person(name="Ada", age=1)


def test_pictures_are_seen(client: genai.Client, behind: Behind) -> None:
    contents: Any = ["look", types.Part.from_bytes(data=PIXEL, mime_type="image/png")]
    answer = client.models.generate_content(model=behind.model, contents=contents)
    assert answer.text == "You said: look (1 image)"


def test_tokens_are_counted(client: genai.Client, behind: Behind) -> None:
    few = client.models.count_tokens(model=behind.model, contents="hello").total_tokens or 0
    more = client.models.count_tokens(model=behind.model, contents="hello " * 20).total_tokens or 0
    assert 0 < few < more


@pytest.mark.parametrize(
    ("status", "error", "word"),
    [
        (400, errors.ClientError, "INVALID_ARGUMENT"),
        (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
        (503, errors.ServerError, "UNAVAILABLE"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_providers_error_is_the_clients_own(
    client: genai.Client, behind: Behind, status: int, error: type[errors.APIError], word: str, streamed: bool
) -> None:
    asked: Any = {"model": behind.model, "contents": f"hi [[sandbox status={status}]]"}
    ask = client.models.generate_content_stream if streamed else client.models.generate_content
    with pytest.raises(error) as refused:
        list(ask(**asked))
    assert (refused.value.code, refused.value.status) == (status, word)


def test_a_stream_that_breaks_is_an_error(client: genai.Client, behind: Behind) -> None:
    asked: Any = {"model": behind.model, "contents": "one two three four [[sandbox cut=middle]]"}
    with pytest.raises(errors.ServerError) as broken:
        list(client.models.generate_content_stream(**asked))
    assert (broken.value.code, broken.value.status) == (502, "UNAVAILABLE")


def test_strangers_and_strange_models_are_refused(gateway: Gateway, client: genai.Client) -> None:
    stranger = client_of(gateway, "gw_dev_" + "0" * 40)
    with pytest.raises(errors.ClientError) as unknown:
        stranger.models.generate_content(model="sandbox/echo", contents="hi")
    assert (unknown.value.code, unknown.value.status) == (401, "UNAUTHENTICATED")
    with pytest.raises(errors.ClientError) as refused:
        client.models.generate_content(model="no-such-model", contents="hi")
    assert (refused.value.code, refused.value.status) == (404, "NOT_FOUND")
    assert "no-such-model" in str(refused.value)
    with pytest.raises(errors.ClientError) as missing:
        client.models.get(model="no-such-model")
    assert missing.value.code == 404


def test_models_are_listed_in_pages(client: genai.Client) -> None:
    models = {model.name: model for model in client.models.list(config={"page_size": 7})}
    assert len(models) > 50
    claude = models["models/claude-haiku-4-5"]
    assert (claude.display_name, claude.supported_actions) == (
        "Claude Haiku 4.5",
        ["generateContent", "streamGenerateContent", "countTokens"],
    )
    assert client.models.get(model="anthropic/claude-haiku-4-5").name == "models/claude-haiku-4-5"


def test_a_long_silence_breaks_no_stream(client: genai.Client) -> None:
    chunks = client.models.generate_content_stream(model="sandbox/echo", contents="one two three [[sandbox chunks=2]]")
    assert "".join(chunk.text or "" for chunk in chunks) == "You said: one two three"


async def test_the_asynchronous_client(gateway: Gateway, behind: Behind) -> None:
    client = client_of(gateway, gateway.key).aio
    stream = await client.models.generate_content_stream(model=behind.model, contents="hello")
    assert "".join([chunk.text or "" async for chunk in stream]) == "You said: hello"
    chat = client.chats.create(model=behind.model, config={"tools": [get_time]})
    answer = await chat.send_message('get_time({"city": "Oslo"})')
    assert "noon in Oslo" in (answer.text or "")
    await client.aclose()


def test_googles_cloud_paths_lead_here(gateway: Gateway) -> None:
    client = genai.Client(
        vertexai=True,
        api_key=gateway.key,
        http_options=types.HttpOptions(base_url=gateway.url),
    )
    assert client.models.generate_content(model="sandbox/echo", contents="hi").text == "You said: hi"
    said = client.models.generate_content_stream(model="publishers/google/models/sandbox/echo", contents="hi")
    assert "".join(chunk.text or "" for chunk in said) == "You said: hi"
