"""The sandbox as an OpenAI that speaks Responses: OpenAI's own client is at home there, and what OpenAI refuses is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
RESULT: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "Sun"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def client(sandbox_url: str) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with openai.OpenAI(base_url=f"{sandbox_url}/v1", api_key="key", max_retries=0) as client:
        yield client


def post(sandbox_url: str, **fields: Any) -> requests.Response:
    body = {"model": "tools", "input": "hi", **fields}
    return requests.post(f"{sandbox_url}/v1/responses", json=body, headers={"authorization": "Bearer key"}, timeout=10)


def test_openais_client_gets_a_plain_answer(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", input="hi [[sandbox usage=10,7,4,2,1 reasoning=2]]")
    assert answer.output_text == "You said: hi"
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    usage = answer.usage
    assert usage is not None
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (10, 4)
    assert usage.input_tokens_details.cache_write_tokens == 1
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens, usage.total_tokens) == (7, 2, 17)


def test_openais_client_gets_a_stream_that_adds_up_to_the_plain_answer(client: openai.OpenAI) -> None:
    plain = client.responses.create(model="tools", input="call weather [[sandbox reasoning=3]]", tools=[WEATHER])  # type: ignore[list-item] # a dictionary serves
    with client.responses.stream(
        model="tools",
        input="call weather [[sandbox reasoning=3]]",
        tools=[WEATHER],  # type: ignore[list-item] # a dictionary serves
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert final.id == plain.id
    # The client's helper adds this to calls.
    told = [{**item.to_dict(), "parsed_arguments": None} for item in final.output]
    assert told == [{**item.to_dict(), "parsed_arguments": None} for item in plain.output]


def test_thinking_and_a_tools_answer_are_taken_back(sandbox_url: str) -> None:
    first = post(sandbox_url, input="call weather", tools=[WEATHER], reasoning={"effort": "low"}).json()["output"]
    result = {**RESULT, "call_id": first[1]["call_id"]}
    again = post(sandbox_url, input=[{"role": "user", "content": "call weather"}, *first, result], tools=[WEATHER])
    assert again.json()["output"][0]["content"][0]["text"] == "weather answered: Sun"


def test_an_answer_that_is_too_long_is_not_complete(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", input="hi [[sandbox words=100]]", max_output_tokens=16)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_openais_client_hears_of_a_failure(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failure:
        client.responses.create(model="echo", input="hi [[sandbox status=503]]")
    assert failure.value.status_code == 503


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stop": ["x"]}, "Unknown parameter: 'stop'."),
        ({"messages": []}, "Unknown parameter: 'messages'."),
        ({"max_output_tokens": 15}, "Invalid request: Expected `int` >= 16"),
        ({"input": [CALL]}, "No tool output found for function call c1."),
        ({"input": [RESULT]}, "No tool call found for function call output with call_id c1."),
        ({"input": [{**CALL, "call_id": "c" * 65}]}, "Invalid request: Expected `str` of length <= 64"),
        (
            {"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "forged"}]},
            "The encrypted content for item rs_1 could not be verified.",
        ),
        (
            {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]},
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        ),
        ({"tool_choice": {"type": "function", "name": "x"}}, "Tool choice 'x' not found in 'tools' parameter."),
        ({"text": {"format": {"type": "json_schema"}}}, "Missing required parameter: 'text.format.name'."),
    ],
)
def test_what_openai_refuses_is_refused(sandbox_url: str, fields: dict[str, Any], words: str) -> None:
    response = post(sandbox_url, **fields)
    assert 400 <= response.status_code <= 404
    assert response.json()["error"]["message"] == words


def test_the_effort_that_was_stated_last_counts(sandbox_url: str) -> None:
    update = {"type": "configuration_update", "reasoning": {"effort": "minimal"}}
    counts = [
        post(sandbox_url, input=[{"role": "user", "content": "hi"}, *items], reasoning={"effort": effort}).json()[
            "usage"
        ]["output_tokens_details"]["reasoning_tokens"]
        for items, effort in (([], "minimal"), ([update], "high"), ([], "high"))
    ]
    assert 0 < counts[0] == counts[1] < counts[2]


def test_what_openai_takes_beside_a_conversation_is_taken(sandbox_url: str) -> None:
    response = post(
        sandbox_url,
        truncation="auto",
        context_management=[{"type": "compaction", "compact_threshold": 100_000}],
        safety_identifier="u" * 64,
        prompt_cache_retention="24h",
        prompt_cache_options={"mode": "implicit"},
        moderation={"model": "omni-moderation-latest"},
        service_tier="fast",
        reasoning={"effort": "low", "context": "auto", "mode": "standard"},
        include=["web_search_call.action.sources"],
    )
    assert response.status_code == 200, response.text
    assert post(sandbox_url, safety_identifier="u" * 65).status_code == 400
