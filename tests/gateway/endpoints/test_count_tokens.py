"""How many tokens a prompt has: the provider's own count where there is one, the estimate where there is not."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import anthropic
import pytest
from google.genai import types
from openai.types.responses.input_token_count_params import InputTokenCountParams

from apps.catalog.models import ModelProvider, Provider
from apps.gateway import count_tokens
from apps.gateway.access import policy
from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import anthropic as anthropic_dialect
from apps.gateway.dialects.chat import bedrock, google, responses, vertex, vertex_anthropic
from apps.gateway.dialects.chat.anthropic.client.read_request import read_prompt
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.anthropic_requests import WEATHER, ask
from tests.support.upstream import Caller, nothing_happened

PATH = "/v1/messages/count_tokens"
TARGET = Target(model_name="the-model", facts={})


@pytest.fixture(params=["anthropic", "google", "vertex", "vertex_anthropic", "responses"])
def native(request: pytest.FixtureRequest, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider that counts itself, of each format that can."""
    place = {
        "anthropic": "/v1",
        "responses": "/v1",
        "google": "/v1beta",
        "vertex": "/v1/projects/p/locations/global",
        "vertex_anthropic": "/v1/projects/p/locations/global",
    }
    speak(caller, monkeypatch, request.param, place[request.param])
    return caller


def speak(caller: Caller, monkeypatch: pytest.MonkeyPatch, dialect: str, place: str) -> None:
    """Make the sandbox a provider of the format, at that place."""
    monkeypatch.setenv("SANDBOX_BASE_URL", f"{caller.sandbox_url}{place}")
    auth = "x-goog-api-key" if dialect == "google" else "x-api-key" if dialect == "anthropic" else "bearer"
    Provider.objects.filter(pk="sandbox").update(dialect=dialect, auth=auth)
    ModelProvider.objects.filter(provider_id="sandbox").update(facts={})
    generation.bump(generation.CATALOG)
    policy.forget_all()


def count(caller: Caller, content: Any, **fields: Any) -> Any:
    """Return the answer to the question."""
    return ask(caller, content, path=PATH, **{"max_tokens": None, **fields})


def test_the_providers_own_count_is_told(native: Caller) -> None:
    tag = uuid4().hex
    response = count(native, f"hi [[sandbox usage=1234,5 tag={tag}]]")
    assert response.status_code == 200, response.content
    assert response.json() == {"input_tokens": 1234}
    [asked] = native.sent(tag)
    assert asked["path"].endswith(("count_tokens", ":countTokens", "count-tokens:rawPredict", "/input_tokens"))


def test_counting_is_free_and_leaves_no_record(native: Caller) -> None:
    assert count(native, "hi [[sandbox usage=1234,5]]").json() == {"input_tokens": 1234}
    assert nothing_happened(native)
    assert RequestLog.objects.count() == 0


def test_the_whole_body_of_a_message_is_taken(native: Caller) -> None:
    tag = uuid4().hex
    response = count(
        native,
        f"hi [[sandbox usage=99,5 tag={tag}]]",
        system="Be brief.",
        max_tokens=100,
        tools=[WEATHER],
        tool_choice={"type": "auto"},
        temperature=0.5,
        stop_sequences=["x"],
        stream=True,
    )
    assert response.json() == {"input_tokens": 99}
    [asked] = native.sent(tag)
    sent = json.dumps(asked["body"])
    assert "Be brief." in sent
    assert "get_weather" in sent


@pytest.mark.parametrize("fault", ["status=500", "status=404", "status=401", "broken", "cut=head", "error", "no-usage"])
def test_a_provider_that_does_not_count_is_estimated(native: Caller, fault: str) -> None:
    content = f"A somewhat longer text, {fault} [[sandbox {fault}]]"
    told = count(native, content).json()["input_tokens"]
    if fault == "no-usage":
        # The sandbox counts zero then, and that is what it says.
        assert told == 0
    else:
        assert told == estimate(content)


def estimate(content: str) -> int:
    """Return the gateway's own count."""
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": content}]}
    return estimate_prompt_tokens(read_prompt(json.dumps(body).encode()))


def test_a_provider_that_is_slow_is_estimated(native: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_tokens, "PATIENCE", 0.2)
    content = "hi [[sandbox hang]]"
    assert count(native, content).json() == {"input_tokens": estimate(content)}


def test_a_provider_of_a_format_without_a_count_is_estimated(caller: Caller) -> None:
    tag = uuid4().hex
    content = f"hi [[sandbox tag={tag}]]"
    assert count(caller, content).json() == {"input_tokens": estimate(content)}
    assert caller.sent(tag) == []


def test_a_model_that_nobody_knows_is_estimated(caller: Caller) -> None:
    assert count(caller, "hello", model="no-such-model").json() == {"input_tokens": estimate("hello")}


def test_previews_are_asked_for_where_tokens_are_counted(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    speak(caller, monkeypatch, "anthropic", "/v1")
    tag = uuid4().hex
    headers = {"anthropic-beta": "context-1m-2025-08-07"}
    count(caller, f"hi [[sandbox tag={tag}]]", headers=headers)
    [asked] = caller.sent(tag)
    assert asked["headers"]["anthropic-beta"] == "context-1m-2025-08-07"
    assert asked["headers"]["anthropic-version"] == "2023-06-01"


def test_anthropics_own_client_counts_at_the_sandbox(sandbox_url: str) -> None:
    client = anthropic.Anthropic(api_key="key", base_url=sandbox_url)
    counted = client.messages.count_tokens(
        model="echo", messages=[{"role": "user", "content": "hi [[sandbox usage=77,1]]"}]
    )
    assert counted.input_tokens == 77


PROMPT = read_prompt(
    json.dumps(
        {
            "model": "m",
            "max_tokens": 5,
            "temperature": 0.1,
            "stream": True,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Weather?"}],
            "tools": [WEATHER],
            "tool_choice": {"type": "any"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
    ).encode()
)


def test_what_anthropic_is_asked() -> None:
    path, body = anthropic_dialect.count_request(PROMPT, TARGET)
    assert path == "/messages/count_tokens"
    asked = json.loads(body)
    assert asked.keys() == {"model", "system", "messages", "tools", "tool_choice", "thinking"}
    assert asked["model"] == "the-model"


def test_what_claude_at_google_cloud_is_asked() -> None:
    path, body = vertex_anthropic.count_request(PROMPT, TARGET)
    assert path == "/publishers/anthropic/models/count-tokens:rawPredict"
    asked = json.loads(body)
    assert (asked["model"], asked["anthropic_version"]) == ("the-model", "vertex-2023-10-16")
    assert "max_tokens" not in asked


def test_what_google_is_asked() -> None:
    chat = read_prompt(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "system": "S"}).encode()
    )
    path, body = google.count_request(chat, TARGET)
    assert path == "/models/the-model:countTokens"
    assert json.loads(body) == {
        "generateContentRequest": {
            "model": "models/the-model",
            "systemInstruction": {"parts": [{"text": "S"}]},
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        }
    }
    path, body = vertex.count_request(chat, TARGET)
    assert path == "/publishers/google/models/the-model:countTokens"
    asked = json.loads(body)
    assert asked == {
        "systemInstruction": {"parts": [{"text": "S"}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }
    types.Content.model_validate(asked["contents"][0])


def test_what_bedrock_is_asked() -> None:
    path, body = bedrock.count_request(PROMPT, Target(model_name="anthropic.claude-9:0", facts={}))
    assert path == "/model/anthropic.claude-9%3A0/count-tokens"
    [(name, asked)] = json.loads(body)["input"].items()
    assert name == "converse"
    assert asked.keys() <= {"messages", "system", "toolConfig", "additionalModelRequestFields"}
    assert asked["system"] == [{"text": "Be brief."}]


def test_what_openai_is_asked() -> None:
    path, body = responses.count_request(PROMPT, TARGET)
    assert path == "/responses/input_tokens"
    asked = json.loads(body)
    assert asked.keys() <= set(InputTokenCountParams.__annotations__)
    assert {"model", "input", "tools"} <= asked.keys()


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (anthropic_dialect.read_count, "input_tokens"),
        (responses.read_count, "input_tokens"),
        (google.read_count, "totalTokens"),
        (bedrock.read_count, "inputTokens"),
    ],
)
def test_an_answer_that_does_not_say_is_no_count(read: Any, field: str) -> None:
    assert read(json.dumps({field: 13, "more": 1}).encode()) == 13
    for answer in ({}, {field: "13"}, {field: -1}, {field: None}, {field: 10**12}, [], None):
        assert read(json.dumps(answer).encode()) is None
    assert read(b"{") is None
    assert read(b"\xff") is None
