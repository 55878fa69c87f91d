"""OpenAI's own client, over every format of provider: whole, streamed, tools, schemas, pictures, thoughts, errors."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
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
WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": CITY, "strict": True}}
TIME: Any = {"type": "function", "function": {"name": "get_time", "parameters": CITY, "strict": True}}
PATCH: Any = {"type": "custom", "custom": {"name": "patch", "description": "Applies a patch."}}
CALLS = 'get_weather({"city": "Zürich"}) and get_time({"city": "Tokyo"})'
# Some models have several providers here: it is the one of the format that has to answer.
ALONE = {"X-No-Fallback": "true"}
# Bedrock counts thoughts among the other tokens of an answer, and what Cohere charges has none.
UNCOUNTED = {"bedrock", "cohere"}


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


def test_the_client_is_answered_where_google_offers_openais_api(gateway: Gateway, behind: Behind) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1beta/openai/", api_key=gateway.key, default_headers=ALONE) as client:
        reply = client.chat.completions.create(model=behind.model, messages=question("hello"))
        assert reply.choices[0].message.content == "You said: hello"
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=behind.model, messages=[])
        assert refused.value.param == "messages"
        assert client.models.retrieve(behind.model_id).id == behind.model_id


@pytest.fixture
def client(gateway: Gateway) -> openai.OpenAI:
    """The official client, pointed at the gateway."""
    return openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0, default_headers=ALONE)


def question(content: Any) -> list[Any]:
    """Return the messages of a first question."""
    return [{"role": "user", "content": content}]


def test_a_plain_completion(client: openai.OpenAI, behind: Behind) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=behind.model, messages=question("hello [[sandbox usage=1000,200,300]]")
    )
    reply = raw.parse()
    assert raw.headers["x-request-id"]
    assert raw.headers["content-type"] == "application/json"
    assert reply.object == "chat.completion"
    assert [choice.message.content for choice in reply.choices] == ["You said: hello"]
    assert (reply.choices[0].finish_reason, reply.choices[0].message.role) == ("stop", "assistant")
    assert (reply.model, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (behind.model_id, 1000, 200)
    assert (reply.usage.total_tokens, reply.usage.prompt_tokens_details.cached_tokens) == (1200, 300)
    assert reply.metadata["used_provider"] == behind.provider


def test_a_streamed_completion(client: openai.OpenAI, behind: Behind) -> None:
    chunks = list(
        client.chat.completions.create(
            model=behind.model,
            messages=question("hello there [[sandbox usage=1000,200,300]]"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "You said: hello there"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 1200)
    assert {(one.id, one.object) for one in chunks} == {(chunks[0].id, "chat.completion.chunk")}


def test_an_answer_is_dumped_without_warnings_and_the_structure_is_beside_its_metadata(
    client: openai.OpenAI, behind: Behind
) -> None:
    asked: Any = {"model": behind.model, "messages": question("hello"), "logit_bias": {"1": 1}}
    reply = client.chat.completions.create(**asked)
    dumped = reply.model_dump()
    assert json.loads(reply.to_json())["metadata"] == dumped["metadata"]
    routing = dumped["gateway"]["routing"]
    assert (routing[-1]["provider"], routing[-1]["status_code"]) == (behind.provider, 200)
    assert json.loads(dumped["metadata"]["routing"]) == routing
    with client.chat.completions.stream(**asked) as stream:
        assert [event.model_dump()["type"] for event in stream][-1] == "content.done"
        assert stream.get_final_completion().model_dump()["metadata"] is None
    chunks = [chunk.model_dump() for chunk in client.chat.completions.create(**asked, stream=True)]
    assert chunks[-1]["metadata"]["routing"][-1]["provider"] == behind.provider


def test_the_stream_helper_adds_up_to_the_plain_answer(client: openai.OpenAI, behind: Behind) -> None:
    asked: Any = {"model": behind.model, "messages": question("one two three"), "max_tokens": 100}
    with client.chat.completions.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    plain = client.chat.completions.create(**asked)
    assert [event.type for event in events][-1] == "content.done"
    assert "".join(event.delta for event in events if event.type == "content.delta") == "You said: one two three"
    said = final.choices[0]
    assert (said.message.content, said.finish_reason) == (plain.choices[0].message.content, "stop")


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_parallel_tools_are_called_and_their_results_read(
    client: openai.OpenAI, behind: Behind, streamed: bool
) -> None:
    asked: Any = {"model": behind.model, "tools": [WEATHER, TIME]}
    message = ask_for_calls(client, question(CALLS), asked, streamed=streamed).choices[0].message
    calls = message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("get_time", {"city": "Tokyo"}),
    ]
    assert len({call.id for call in calls}) == 2
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name} is fine"} for call in calls]
    final = client.chat.completions.create(messages=[*question(CALLS), message, *results], **asked)
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content == (
        "get_weather answered: get_weather is fine; get_time answered: get_time is fine"
    )


def ask_for_calls(client: openai.OpenAI, messages: list[Any], asked: Any, *, streamed: bool) -> ChatCompletion:
    """Return the answer, whole or as the SDK puts it together."""
    if not streamed:
        return client.chat.completions.create(messages=messages, **asked)
    with client.chat.completions.stream(messages=messages, **asked) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.parsed_arguments for event in events] == [{"city": "Zürich"}, {"city": "Tokyo"}]
    return final


def test_a_chosen_tool_is_called(client: openai.OpenAI, behind: Behind) -> None:
    chosen: Any = {"type": "function", "function": {"name": "get_time"}}
    reply = client.chat.completions.create(
        model=behind.model, messages=question("hello"), tools=[WEATHER, TIME], tool_choice=chosen
    )
    assert [call.function.name for call in reply.choices[0].message.tool_calls] == ["get_time"]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_custom_tool_is_called_with_free_text(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "tools": [WEATHER, PATCH], "messages": question('patch({"input": "+ü\\n"})')}
    if streamed:
        pieces = [call for chunk in client.chat.completions.create(**asked, stream=True) for call in calls_in(chunk)]
        told = (pieces[0].type, pieces[0].custom["name"], "".join(piece.custom["input"] for piece in pieces))
        assert told == ("custom", "patch", "+ü\n")
        return
    message = client.chat.completions.create(**asked).choices[0].message
    [call] = message.tool_calls
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "patch", "+ü\n")
    result = {"role": "tool", "tool_call_id": call.id, "content": "applied"}
    final = client.chat.completions.create(**{**asked, "messages": [*asked["messages"], message, result]})
    assert final.choices[0].message.content == "patch answered: applied"


def calls_in(chunk: Any) -> list[Any]:
    """Return the pieces of calls in a chunk."""
    return [call for choice in chunk.choices for call in choice.delta.tool_calls or ()]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_schema_is_answered_in_its_shape(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "messages": question("who is 'Ada' of 'Bob'?"), "response_format": Person}
    if streamed:
        with client.chat.completions.stream(**asked) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.parse(**asked).choices[0].message
    assert message.parsed == Person(name="Ada", age=1, friends=["Bob"])


def test_an_answer_cut_off_by_its_limit_is_told_so(client: openai.OpenAI, behind: Behind) -> None:
    # Sixteen tokens are the least that Responses takes: the answer has to be longer.
    name = "Ada " * 30
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=behind.model, messages=question(f"who is '{name}'?"), response_format=Person, max_completion_tokens=2
        )


def test_pictures_are_seen(client: openai.OpenAI, behind: Behind) -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PIXEL_URL}}]
    reply = client.chat.completions.create(model=behind.model, messages=question(parts))
    assert reply.choices[0].message.content == "You said: look (1 image)"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_thoughts_are_shown_and_counted(client: openai.OpenAI, behind: Behind, streamed: bool) -> None:
    asked: Any = {"model": behind.model, "messages": question("why?"), "reasoning_effort": "low"}
    if streamed:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            final = stream.get_final_completion()
    else:
        final = client.chat.completions.create(**asked)
    message: Any = final.choices[0].message
    assert message.content == "You said: why?"
    assert message.reasoning.startswith("thought-1 thought-2")
    assert (final.usage.completion_tokens_details.reasoning_tokens > 0) is (behind.format not in UNCOUNTED)


def test_log_probabilities_are_read(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="sandbox/echo", messages=question("hi"), logprobs=True)
    assert (reply.choices[0].message.content, reply.choices[0].logprobs) == ("You said: hi", None)


def test_what_a_format_has_no_words_for_is_refused_by_its_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="anthropic/claude-haiku-4-5",
            messages=question("hi"),
            logprobs=True,
        )
    assert (refused.value.code, refused.value.param) == ("unsupported_feature", "logprobs")


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [(400, openai.BadRequestError, 400), (429, openai.RateLimitError, 429), (503, openai.InternalServerError, 503)],
)
def test_a_providers_error_is_the_clients_own(
    client: openai.OpenAI, behind: Behind, status: int, error: type[openai.APIStatusError], code: int
) -> None:
    with pytest.raises(error) as refused:
        client.chat.completions.create(model=behind.model, messages=question(f"hi [[sandbox status={status}]]"))
    assert refused.value.status_code == code
    assert refused.value.body["message"]


def test_a_stream_that_breaks_is_an_error(client: openai.OpenAI, behind: Behind) -> None:
    with pytest.raises(openai.APIError):
        list(
            client.chat.completions.create(
                model=behind.model, messages=question("one two three four [[sandbox cut=middle]]"), stream=True
            )
        )


def test_a_stranger_is_turned_away(gateway: Gateway) -> None:
    stranger = openai.OpenAI(base_url=gateway.openai_url, api_key="gw_dev_" + "0" * 40, max_retries=0)
    with pytest.raises(openai.AuthenticationError) as refused:
        stranger.chat.completions.create(model="sandbox/echo", messages=question("hi"))
    assert refused.value.status_code == 401


def test_what_does_not_exist_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="no-such-model", messages=question("hi"))
    assert "no-such-model" in refused.value.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.BadRequestError) as malformed:
        client.chat.completions.create(model="sandbox/echo", messages=question(7))
    assert malformed.value.param == "messages[0].content"


def test_who_cannot_pay_is_told(gateway: Gateway, client: openai.OpenAI) -> None:
    costly = question("hello " * 50)
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="openai/gpt-5.5", messages=costly, max_completion_tokens=128_000, n=128)
    assert refused.value.status_code == 402


def test_models_are_listed(client: openai.OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert models["echo"].object == "model"
    assert client.models.retrieve("sandbox/echo").id == "echo"


def test_the_client_tries_again_when_a_provider_was_busy(gateway: Gateway) -> None:
    patient = openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=1)
    script = "hi [[sandbox status=429 retry-after=0.1 times=1 tag=once-busy]]"
    reply = patient.chat.completions.create(model="sandbox/echo", messages=question(script))
    assert reply.choices[0].message.content == "You said: hi"
    assert [sent["status"] for sent in gateway.sent("once-busy")] == [429, 200]


async def test_the_asynchronous_client(gateway: Gateway, behind: Behind) -> None:
    client = openai.AsyncOpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0, default_headers=ALONE)
    reply = await client.chat.completions.create(model=behind.model, messages=question("hello"))
    assert reply.choices[0].message.content == "You said: hello"
    async with client.chat.completions.stream(
        model=behind.model, messages=question(CALLS), tools=[WEATHER, TIME]
    ) as stream:
        final = await stream.get_final_completion()
    assert [call.function.parsed_arguments for call in final.choices[0].message.tool_calls] == [
        {"city": "Zürich"},
        {"city": "Tokyo"},
    ]
    await client.close()
