"""OpenAI's format in front, Google's behind: the gateway over real HTTP, against the sandbox as a strict Gemini."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.logs.models import RequestLog
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of, settle_all

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def gemini(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider `gemini` that speaks Google's format and knows the sandbox's models."""
    add_provider(caller, monkeypatch, "gemini", "google", auth="x-goog-api-key", path="/v1beta")
    offer_models("gemini")
    return caller


def ask(gemini: Caller, content: Any = "hello", **fields: Any) -> Any:
    """Return the answer of the provider's `echo`, unless another model is asked."""
    return gemini.chat(content, **{"model": "gemini/echo", **fields})


def test_a_plain_answer_comes_back_in_openais_format_and_is_billed(gemini: Caller) -> None:
    tag = uuid4().hex
    response = ask(gemini, f"hi [[sandbox usage=1000,200,100,50 tag={tag}]]", max_tokens=500)
    assert response.status_code == 200, response.content
    body = response.json()
    # The specification's `metadata` is richer than the field of that name in OpenAI's types.
    ChatCompletion.model_validate({**body, "metadata": None})
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (1000, 200, 1200)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 100
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 50
    assert body["metadata"]["used_provider"] == "gemini"
    (sent,) = gemini.sent(tag)
    assert sent["path"] == "/v1beta/models/echo:generateContent"
    assert sent["body"]["generationConfig"] == {"maxOutputTokens": 500}
    headers = {name.lower() for name in sent["headers"]}
    assert "x-goog-api-key" in headers
    assert "authorization" not in headers
    settle_all()
    log = RequestLog.objects.get()
    assert log.cost == Decimal(str(usage["cost_usd_total"]))
    assert log.cost > 0


def test_a_stream_comes_back_in_openais_chunks(gemini: Caller) -> None:
    *chunks, end = chunks_of(ask(gemini, "one two [[sandbox chunks=3 usage=10,5 reasoning=2]]", stream=True))
    assert end == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "You said: one two"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "thought-1 thought-2"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("keeps_only_ids", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tools_answer_is_taken_because_the_seal_of_its_call_comes_back(
    gemini: Caller, stream: bool, keeps_only_ids: bool
) -> None:
    question = {"role": "user", "content": "call weather"}
    response = ask(gemini, model="gemini/tools", messages=[question], tools=[WEATHER], stream=stream)
    [call] = streamed_calls(response) if stream else response.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    if keeps_only_ids:
        call = {"id": call["id"], "type": "function", "function": call["function"]}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
    again = ask(gemini, model="gemini/tools", messages=[question, answer, result], tools=[WEATHER])
    assert again.status_code == 200, again.content
    assert again.json()["choices"][0]["message"]["content"] == "weather answered: Sun"


def streamed_calls(response: Any) -> list[dict[str, Any]]:
    """Return the calls of a stream, put together as clients do."""
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(response)[:-1]:
        for delta in chunk["choices"][0]["delta"].get("tool_calls", []):
            call = calls.setdefault(delta["index"], {**delta, "function": {"name": "", "arguments": ""}})
            for name, text in delta["function"].items():
                call["function"][name] += text
    return [{name: value for name, value in call.items() if name != "index"} for call in calls.values()]


def test_a_call_that_another_model_made_is_taken(gemini: Caller) -> None:
    function = {"name": "weather", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Sun"},
    ]
    response = ask(gemini, model="gemini/tools", messages=messages, tools=[WEATHER])
    assert response.json()["choices"][0]["message"]["content"] == "weather answered: Sun"


def test_a_schema_of_the_answer_is_asked_for(gemini: Caller) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    response = ask(gemini, model="gemini/json", response_format=form)
    assert json.loads(response.json()["choices"][0]["message"]["content"]).keys() == {"city"}


def test_a_refusal_of_googles_reaches_the_client_in_its_words(gemini: Caller) -> None:
    response = ask(gemini, "hi [[sandbox status=400]]")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "INVALID_ARGUMENT"


def test_what_google_has_no_words_for_is_refused_before_it_is_asked(gemini: Caller) -> None:
    tag = uuid4().hex
    response = ask(gemini, f"hi [[sandbox tag={tag}]]", image_config={"n": 2}, headers={"X-No-Fallback": "true"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_feature")
    assert response.json()["error"]["param"] == "image_config"
    assert gemini.sent(tag) == []


def test_what_google_has_no_words_for_is_answered_by_another_provider(gemini: Caller) -> None:
    response = ask(gemini, "hi", model="echo", image_config={"n": 2})
    assert (response.status_code, response.json()["metadata"]["used_provider"]) == (200, "sandbox")


def test_a_provider_that_fails_after_one_without_words_for_it_is_the_one_that_is_blamed(gemini: Caller) -> None:
    response = ask(gemini, "hi [[sandbox status=503]]", model="echo", image_config={"n": 2})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.status_code) == ("sandbox", 503)


@pytest.mark.parametrize("fault", ["cut=2", "error=2", "broken=2"])
def test_a_stream_that_breaks_ends_with_an_error(gemini: Caller, fault: str) -> None:
    *_, last = chunks_of(ask(gemini, f"one two three [[sandbox {fault}]]", stream=True))
    assert last["error"]["message"]
