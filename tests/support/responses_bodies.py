"""Bodies of requests in the Responses format against OpenAI's own types, fields that these do not know included."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from openai.types.responses.response_input_audio_param import ResponseInputAudioParam
from pydantic import TypeAdapter, ValidationError

PLAIN: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)
STREAMING: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
SOUND: TypeAdapter[Any] = TypeAdapter(ResponseInputAudioParam)


def assert_well_formed(wire: dict[str, Any]) -> None:
    """OpenAI's types take a request, and know all of its fields. Sound has a type, but none of a message's content."""
    for item in wire["input"]:
        content = item.get("content")
        for part in list(content) if isinstance(content, list) else ():
            if part["type"] == "input_audio":
                assert plainly(SOUND.validate_python(part)) == part
                content.remove(part)
    types = STREAMING if wire.get("stream") else PLAIN
    try:
        known = types.validate_python(wire)
    except ValidationError as error:
        pytest.fail(f"{error.title}: {error.errors()[0]} and {error.error_count()} more")
    assert plainly(known) == wire


def plainly(value: Any) -> Any:
    """Return a validated value as plain values: fields that the types do not know are missing from it."""
    if isinstance(value, dict):
        return {name: plainly(inner) for name, inner in value.items()}
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return [plainly(inner) for inner in value]
