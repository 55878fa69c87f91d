"""Refused and failed requests in Anthropic's format, in the words of its clients (section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.anthropic_requests import ask, speak
from tests.support.upstream import Caller, nothing_happened


@pytest.fixture(params=["openai", "anthropic"])
def upstream(request: pytest.FixtureRequest, caller: Caller) -> str:
    """The format that the upstream speaks: each test runs against both."""
    speak(request.param)
    return str(request.param)


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens"])
def test_a_missing_field_is_400_and_named(caller: Caller, name: str) -> None:
    response = ask(caller, **{name: None})
    message = f"Invalid request format: {name}: Required"
    assert (response.status_code, response.json()) == (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": message},
            "status": 400,
            "message": message,
        },
    )
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 1.5}, "temperature: must be between 0 and 1"),
        ({"max_tokens": "many"}, "max_tokens: must be an integer"),
        ({"messages": []}, "messages: must hold at least one message"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name: Required"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages[0].content[0].tool_use_id: Required",
        ),
    ],
)
def test_a_field_that_cannot_be_taken_is_400_and_named(caller: Caller, fields: dict[str, Any], message: str) -> None:
    response = ask(caller, **fields)
    assert (response.status_code, response.json()["error"]["message"]) == (400, f"Invalid request format: {message}")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        ("hi [[sandbox status=429]]", 429, "rate_limit_error"),
        ("hi [[sandbox status=503]]", 503, "overloaded_error"),
        ("hi [[sandbox status=413]]", 413, "request_too_large"),
        ("hi [[sandbox status=400]]", 400, "invalid_request_error"),
    ],
)
def test_failures_of_the_provider_are_told_in_anthropics_words(
    caller: Caller, upstream: str, content: str, status: int, kind: str
) -> None:
    response = ask(caller, content)
    body = response.json()
    assert (response.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert (body["status"], body["message"]) == (status, body["error"]["message"])


def test_without_a_valid_key_it_is_401(caller: Caller) -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        response = ask(caller, path=path, headers={"x-api-key": "gw_dev_" + "0" * 40})
        assert (response.status_code, response.json()["error"]) == (
            401,
            {"type": "authentication_error", "message": "Missing or invalid API key"},
        )
    assert nothing_happened(caller)


def test_a_request_has_its_id_where_anthropics_clients_look_for_it(caller: Caller) -> None:
    for response in (ask(caller), ask(caller, stream=True), ask(caller, model="no-such-model")):
        assert response["request-id"] == response["x-request-id"]
    listed = caller.client.get("/v1/models/no-such-model", headers={"anthropic-version": "2023-06-01"})
    assert (listed.status_code, listed["request-id"]) == (404, listed["x-request-id"])
    assert "request-id" not in caller.chat()
