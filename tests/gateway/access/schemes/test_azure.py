"""Azure: OpenAI's format as Azure serves it (what its filters say, and how they refuse), and Anthropic's models there:
their address, their key, and the whole way to them and back."""

from __future__ import annotations

import json
from uuid import uuid4

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.catalog.files import read_files
from apps.gateway.access.schemes import SignableRequest, authorize
from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Finished, OpaqueDelta, Started, Summary, TextDelta, fold
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.chat import azure_anthropic, openai
from apps.gateway.framing import sse_frames
from apps.kernel.usage import Usage
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of

SAFE = {"hate": {"filtered": False, "severity": "safe"}}
CHAT = openai.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')
TARGET = Target(model_name="claude", facts={})
SUMMARY = Summary(usage=Usage(input=7, output=3), cost={}, metadata={})


def chunk(**fields: object) -> bytes:
    around = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return b"data: " + msgspec.json.encode({**around, **fields}) + b"\n\n"


def choice(delta: dict[str, str], word: str | None = None, results: object = SAFE) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": word, "logprobs": None, "content_filter_results": results}


def test_what_azures_filters_say_reaches_clients_and_breaks_none() -> None:
    prompt = [{"prompt_index": 0, "content_filter_results": SAFE}]
    stream = b"".join(
        (
            # The first chunk has neither a choice nor a name.
            chunk(id="", object="", created=0, model="", choices=[], prompt_filter_results=prompt),
            chunk(choices=[choice({"role": "assistant", "content": ""}, results={})]),
            chunk(choices=[choice({"content": "Paris"})]),
            chunk(choices=[choice({}, "stop", {})]),
            chunk(choices=[], usage={"prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23}),
            b"data: [DONE]\n\n",
        )
    )
    events = list(openai.read_events(sse_frames([stream])))
    assert events[0] == Started(
        id="chatcmpl-1", model="gpt-4o", created=1, extra={"openai": {"prompt_filter_results": prompt}}
    )
    assert TextDelta(text="Paris") in events
    assert OpaqueDelta(dialect="openai", data={"content_filter_results": SAFE}, of="choice") in events
    assert Finished(reason="stop", native="stop") in events
    *payloads, end = sse_frames(openai.write_events([*events, SUMMARY], CHAT))
    assert end == b"[DONE]"
    for payload in payloads:
        ChatCompletionChunk.model_validate({**json.loads(payload), "metadata": None})
    plain = json.loads(openai.write_reply(fold(events), SUMMARY, CHAT))
    ChatCompletion.model_validate({**plain, "metadata": None})
    assert plain["prompt_filter_results"] == prompt
    told = [json.loads(payload)["choices"] for payload in payloads]
    assert SAFE in [choices[0].get("content_filter_results") for choices in told if choices]


def test_an_answer_that_was_filtered_says_so() -> None:
    results = {"hate": {"filtered": True, "severity": "high"}}
    stream = chunk(choices=[choice({"content": "Once"})]) + chunk(choices=[choice({}, "content_filter", results)])
    reply = fold(openai.read_events(sse_frames([stream + b"data: [DONE]\n\n"])))
    assert (reply.choices[0].text, reply.choices[0].finish) == ("Once", "content_filter")


@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_a_prompt_that_was_filtered_is_a_refusal_with_its_reason(dialect: str) -> None:
    error = {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE},
    }
    found = find_dialect(dialect)
    assert found is not None
    failure = found.read_failure(400, msgspec.json.encode({"error": error}))
    assert (failure.code, failure.param, failure.status) == ("content_filter", "prompt", None)
    assert failure.message == error["message"]


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("https://acme.openai.azure.com/openai/v1", "https://acme.services.ai.azure.com/anthropic/v1/messages"),
        ("https://Acme.OpenAI.Azure.com:443/openai/v1", "https://Acme.services.ai.azure.com:443/anthropic/v1/messages"),
        ("https://acme.services.ai.azure.com/anthropic/v1", "https://acme.services.ai.azure.com/anthropic/v1/messages"),
        ("https://proxy.example/azure/openai/v1", "https://proxy.example/azure/anthropic/v1/messages"),
        ("http://127.0.0.1:8001/v1", "http://127.0.0.1:8001/v1/messages"),
        ("https://openai.azure.com.example/v1", "https://openai.azure.com.example/v1/messages"),
    ],
)
def test_anthropics_models_are_beside_openais_of_the_same_resource(base_url: str, expected: str) -> None:
    assert azure_anthropic.PROVIDER.url_of(base_url, CHAT, TARGET) == expected


def test_tokens_are_counted_there_too_and_thinking_comes_back_under_anthropics_seal() -> None:
    place, body = azure_anthropic.count_request(CHAT, TARGET)
    counted = azure_anthropic.count_url("https://acme.openai.azure.com/openai/v1", place)
    assert counted == "https://acme.services.ai.azure.com/anthropic/v1/messages/count_tokens"
    assert json.loads(body)["model"] == "claude"
    thinking = openai.read_request(
        b'{"model": "m", "messages": [{"role": "user", "content": "?"}], "reasoning_effort": "low"}'
    )
    assert azure_anthropic.PROVIDER.signature_format(thinking, TARGET) == "anthropic-claude-v1"


def test_the_key_is_presented_as_each_of_the_two_wants_it() -> None:
    def headers_for(url: str) -> dict[str, str]:
        return authorize("api-key", "secret", SignableRequest("POST", url, {}, b""))

    assert headers_for("https://acme.openai.azure.com/openai/v1/responses") == {"api-key": "secret"}
    assert headers_for("https://acme.services.ai.azure.com/anthropic/v1/messages") == {
        "api-key": "secret",
        "x-api-key": "secret",
    }


def test_azures_mappings_are_all_spoken() -> None:
    [azure] = [file for file in read_files().providers if file.id == "azure"]
    spoken = {mapping.dialect if isinstance(mapping.dialect, str) else azure.dialect for mapping in azure.models}
    assert spoken == {"openai", "responses", "azure_anthropic"}
    assert all(find_dialect(name) is not None for name in spoken)
    assert azure.auth == "api-key"


@pytest.fixture
def foundry(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider `foundry` that serves the sandbox's models as Azure does Anthropic's."""
    # The sandbox's own address says nothing of Anthropic, so that its header has to be stated.
    add_provider(caller, monkeypatch, "foundry", "openai", auth="x-api-key")
    offer_models("foundry", lambda mapping: setattr(mapping, "facts", {"dialect": "azure_anthropic"}))
    return caller


def test_an_openai_client_gets_anthropics_answer_from_azure(foundry: Caller) -> None:
    tag = uuid4().hex
    response = foundry.chat(f"hi [[sandbox usage=10,5 tag={tag}]]", model="foundry/echo", max_tokens=50)
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert (body["usage"]["total_tokens"], body["metadata"]["used_provider"]) == (15, "foundry")
    (sent,) = foundry.sent(tag)
    assert sent["path"] == "/v1/messages"
    assert {name.lower() for name in sent["headers"]} >= {"x-api-key", "anthropic-version"}
    *chunks, end = chunks_of(foundry.chat("one two [[sandbox chunks=2]]", model="foundry/echo", stream=True))
    assert end == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "You said: one two"


def test_an_anthropic_clients_request_passes_through_azure_as_it_is(foundry: Caller) -> None:
    tag = uuid4().hex
    tool = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    question = f"call weather [[sandbox tag={tag}]]"
    response = ask_messages(foundry, question, model="foundry/tools", tools=[tool])
    assert response.status_code == 200, response.content
    assert response.json()["content"][-1]["type"] == "tool_use"
    (sent,) = foundry.sent(tag)
    assert sent["body"] == {
        "model": "tools",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": question}],
        "tools": [tool],
    }
