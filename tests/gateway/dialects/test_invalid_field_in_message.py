"""Clients of some formats show nothing of an error but its message, so the invalid field is part of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from apps.gateway.dialects.chat import anthropic, bedrock, ollama
from apps.gateway.dialects.chat.bedrock.wire import error_for_clients
from apps.kernel.errors import ApiError, InvalidRequest, NotFound, UpstreamRefused

PLACE = "messages[2].content[0]"

Shown = Callable[[ApiError], Any]


def shown_by_anthropic(error: ApiError) -> Any:
    body = json.loads(anthropic.write_error(error))
    assert body["message"] == body["error"]["message"]
    return body["message"]


def shown_by_ollama(error: ApiError) -> Any:
    return json.loads(ollama.write_error(error))["error"]


def shown_by_aws(error: ApiError) -> Any:
    message = json.loads(bedrock.write_error(error))["message"]
    assert json.loads(bedrock.write_error(error_for_clients(error)))["message"] == message
    return message


FORMATS = pytest.mark.parametrize("shown", [shown_by_anthropic, shown_by_ollama, shown_by_aws])


@FORMATS
@pytest.mark.parametrize(
    ("message", "param", "seen"),
    [
        ("The provider has no form for it", PLACE, f"{PLACE}: The provider has no form for it"),
        ("The service tier flex is not there", "service_tier", "service_tier: The service tier flex is not there"),
        ("Only one answer: n is 2", "n", "Only one answer: n is 2"),
        ("sandbox/echo does not support reasoning", "model", "sandbox/echo does not support reasoning"),
        (f"{PLACE}.text is too long", PLACE, f"{PLACE}.text is too long"),
        ("Blocked by the rule in messages[0].content", "messages", "Blocked by the rule in messages[0].content"),
        ("Not even JSON", None, "Not even JSON"),
    ],
)
def test_the_message_names_the_invalid_field_once(shown: Shown, message: str, param: str | None, seen: str) -> None:
    assert shown(InvalidRequest(message, param=param)) == seen


@FORMATS
def test_words_of_providers_and_words_that_agents_look_for_stay_as_they_are(shown: Shown) -> None:
    assert shown(UpstreamRefused("Bad value", param="top_p")) == "Bad value"
    assert shown(NotFound("No such File object: file-1", param="file_id")) == "No such File object: file-1"
    too_long = InvalidRequest(
        "prompt is too long: Input is too long for requested model", code="context_length_exceeded", param="messages"
    )
    assert shown(too_long) == too_long.message
