"""Sound of earlier answers, named by its id: OpenAI gets it as it is, other formats get its words and tell the loss."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, google, openai, responses

HI, MORE = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Again"}


def asked(**audio: str) -> Chat:
    """Return the chat of a client whose model answered with sound."""
    body = {"model": "m", "messages": [HI, {"role": "assistant", "audio": audio}, MORE]}
    return openai.read_request(json.dumps(body).encode())


def written(chat: Chat, dialect: ModuleType) -> tuple[Any, list[str]]:
    """Return the request to the provider, and the fields that were reported as dropped."""
    target = Target(model_name="m", facts={}, dropped_fields=[])
    return json.loads(dialect.write_request(chat, target)), [dropped.param for dropped in target.dropped_fields]


@pytest.mark.parametrize("audio", [{"id": "audio_1"}, {"id": "audio_1", "transcript": "Hello"}])
def test_openai_gets_the_id_as_it_came(audio: dict[str, str]) -> None:
    wire, told = written(asked(**audio), openai)
    assert (wire["messages"], told) == ([HI, {"role": "assistant", "audio": audio}, MORE], [])


@pytest.mark.parametrize("dialect", [responses, anthropic, google, bedrock, cohere])
def test_other_formats_tell_that_the_sound_is_lost(dialect: ModuleType) -> None:
    wire, told = written(asked(id="audio_1"), dialect)
    assert ("audio_1" in json.dumps(wire), told) == (False, ["messages[1].audio"])


@pytest.mark.parametrize("dialect", [responses, anthropic, google, bedrock, cohere])
def test_other_formats_get_the_words_that_the_client_kept(dialect: ModuleType) -> None:
    wire, told = written(asked(id="audio_1", transcript="Hello there"), dialect)
    assert json.dumps(wire).count("Hello there") == 1
    assert told == ["messages[1].audio"]
