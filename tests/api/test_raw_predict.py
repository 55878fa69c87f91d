"""Anthropic's Messages in Vertex AI's form: the model in the path, the version and previews in the body (section 4)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.endpoints.generate_content import as_message, model_name
from tests.support.anthropic_requests import speak
from tests.support.upstream import Caller, nothing_happened

pytestmark = pytest.mark.django_db

MODELS = "/v1/projects/p/locations/global/publishers/anthropic/models"


def ask(caller: Caller, method: str, name: str = "sandbox/echo", content: str = "hello", **fields: Any) -> Any:
    """Ask as `AnthropicVertex` does."""
    headers = {"Authorization": f"Bearer {caller.token}", "anthropic-version": "2023-06-01"}
    body = {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        **fields,
    }
    path = f"{MODELS}/{name}:{method}"
    return caller.client.post(path, body, content_type="application/json", headers=headers)


def test_a_message_is_answered_and_neither_version_nor_previews_are_left_in_the_body(caller: Caller) -> None:
    speak("anthropic")
    tag = uuid4().hex
    answer = ask(caller, "rawPredict", content=f"hi [[sandbox tag={tag}]]", anthropic_beta=["context-1m-2025-08-07"])
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert (body["type"], body["content"]) == ("message", [{"type": "text", "text": "You said: hi"}])
    assert "x-gateway-loss" not in answer.headers
    (sent,) = caller.sent(tag)
    assert set(sent["body"]) == {"model", "max_tokens", "messages"}
    headers = {name.lower(): value for name, value in sent["headers"].items()}
    assert headers["anthropic-beta"] == "context-1m-2025-08-07"


def test_a_stream_has_anthropics_events(caller: Caller) -> None:
    answer = ask(caller, "streamRawPredict", stream=True)
    events = [line for line in b"".join(answer.streaming_content).splitlines() if line.startswith(b"event: ")]
    assert (events[0], events[-1]) == (b"event: message_start", b"event: message_stop")


def test_tokens_are_counted_for_the_model_that_the_body_names(caller: Caller) -> None:
    answer = ask(caller, "rawPredict", name="count-tokens", model="sandbox/echo")
    assert answer.status_code == 200, answer.content
    assert answer.json()["input_tokens"] > 0


def test_an_error_has_anthropics_shape_and_calls_no_provider(caller: Caller) -> None:
    answer = ask(caller, "rawPredict", max_tokens="many")
    assert answer.status_code == 400
    assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "invalid_request_error")
    assert nothing_happened(caller)


def test_other_publishers_have_no_such_method(caller: Caller) -> None:
    path = MODELS.replace("anthropic", "google") + "/sandbox/echo:rawPredict"
    answer = caller.client.post(
        path, {}, content_type="application/json", headers={"Authorization": f"Bearer {caller.token}"}
    )
    assert answer.status_code == 404
    assert "`rawPredict` is no method of a model here" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-haiku-4-5", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5-20251001"),
        ("claude-sonnet-4-6@default", "claude-sonnet-4-6"),
        ("claude-sonnet-4-6@latest", "claude-sonnet-4-6"),
    ],
)
def test_a_version_is_written_as_all_other_clients_do(name: str, expected: str) -> None:
    assert model_name(name) == expected


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_left_to_its_reader(body: bytes) -> None:
    assert as_message("m", body) == (body, [])


@pytest.mark.parametrize("betas", ["x", 3, [1], {"a": 1}, ["bad name!"], [""]])
def test_previews_that_cannot_be_meant_are_none(betas: Any) -> None:
    body, named = as_message("m", json.dumps({"anthropic_beta": betas, "x": 1}).encode())
    assert (json.loads(body), named) == ({"model": "m", "x": 1}, [])
