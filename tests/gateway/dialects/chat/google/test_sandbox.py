"""The sandbox as a Gemini: Google's own client is at home there, and what Google refuses is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from google import genai
from google.genai import errors, types

WEATHER = {"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {"type": "object", "properties": {}}}]}
CALL: dict[str, Any] = {"functionCall": {"id": "c1", "name": "weather", "args": {}}}
RESULT: dict[str, Any] = {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "Sun"}}}


@pytest.fixture
def client(sandbox_url: str) -> Iterator[genai.Client]:
    """Google's own client."""
    with genai.Client(
        api_key="key", http_options=types.HttpOptions(base_url=sandbox_url, api_version="v1beta")
    ) as client:
        yield client


def post(sandbox_url: str, parts: list[Any], **fields: Any) -> requests.Response:
    """Ask with turns of one part each, the user's first."""
    contents = [{"role": ("user", "model")[place % 2], "parts": [part]} for place, part in enumerate(parts)]
    return requests.post(
        f"{sandbox_url}/v1beta/models/tools:generateContent",
        json={"contents": contents, **fields},
        headers={"x-goog-api-key": "key"},
        timeout=10,
    )


def test_googles_client_gets_a_plain_answer(client: genai.Client) -> None:
    answer = client.models.generate_content(model="echo", contents="hi [[sandbox usage=10,7,4,2]]")
    assert answer.text == "You said: hi"
    counts = answer.usage_metadata
    assert counts is not None
    assert (counts.prompt_token_count, counts.cached_content_token_count) == (10, 4)
    assert (counts.candidates_token_count, counts.thoughts_token_count, counts.total_token_count) == (5, 2, 17)


def test_googles_client_gets_a_stream(client: genai.Client) -> None:
    chunks = list(client.models.generate_content_stream(model="echo", contents="one two [[sandbox chunks=3]]"))
    assert "".join(chunk.text or "" for chunk in chunks) == "You said: one two"
    assert [chunk.candidates[0].finish_reason for chunk in chunks if chunk.candidates][-1] == types.FinishReason.STOP


def test_googles_client_hears_of_a_failure(client: genai.Client) -> None:
    with pytest.raises(errors.ServerError) as failure:
        client.models.generate_content(model="echo", contents="hi [[sandbox status=503]]")
    assert (failure.value.code, failure.value.status) == (503, "UNAVAILABLE")


def test_a_call_is_sealed_and_its_seal_is_insisted_on(sandbox_url: str) -> None:
    question = {"text": "call weather"}
    [part] = post(sandbox_url, [question], tools=[WEATHER]).json()["candidates"][0]["content"]["parts"]
    assert part["functionCall"]["name"] == "weather"
    result = {"functionResponse": {**RESULT["functionResponse"], "id": part["functionCall"]["id"]}}
    answer = post(sandbox_url, [question, part, result]).json()
    assert answer["candidates"][0]["content"]["parts"] == [{"text": "weather answered: Sun"}]
    for seal in ({}, {"thoughtSignature": "AAAA"}):
        refusal = post(sandbox_url, [question, {**CALL, **seal}, RESULT])
        assert (refusal.status_code, refusal.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("parts", "fields"),
    [
        ([{"text": "Hi", "unknown": 1}], {}),
        ([{"text": "Hi"}], {"unknown": 1}),
        ([{"text": "Hi"}], {"generationConfig": {"stopSequences": list("abcdef")}}),
        ([{"text": "Hi"}], {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 1}}}),
        ([RESULT], {}),
        ([], {}),
    ],
)
def test_what_google_refuses_is_refused(sandbox_url: str, parts: list[Any], fields: dict[str, Any]) -> None:
    assert post(sandbox_url, parts, **fields).status_code == 400


def test_a_request_without_a_key_is_refused(sandbox_url: str) -> None:
    answer = requests.post(f"{sandbox_url}/v1beta/models/echo:generateContent", json={}, timeout=10)
    assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_the_models_are_listed_in_googles_words(sandbox_url: str) -> None:
    answer = requests.get(f"{sandbox_url}/v1beta/models", headers={"x-goog-api-key": "key"}, timeout=10).json()
    assert "models/echo" in [model["name"] for model in answer["models"]]
