"""Losses of every format, through HTTP for clients of both formats: noted, refused for the strict, or emulated."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.anthropic_requests import ask as ask_messages
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, chunks_of

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
ALONE = {"X-No-Fallback": "true"}
# A hint of OpenAI's clients that a format has no words for; OpenAI's own takes them all.
HINTS: dict[str, tuple[str, Any]] = {
    "anthropic": ("seed", 7),
    "google": ("verbosity", "low"),
    "responses": ("seed", 7),
    "bedrock": ("seed", 7),
    "cohere": ("verbosity", "low"),
    "vertex": ("verbosity", "low"),
    "vertex_anthropic": ("seed", 7),
    "azure_anthropic": ("seed", 7),
}
# Formats that an Anthropic client's own fields are known to.
ANTHROPICS = {"anthropic", "azure_anthropic", "vertex_anthropic"}


@pytest.fixture(params=PLACES)
def wire_format(request: pytest.FixtureRequest) -> str:
    """Each format."""
    return str(request.param)


def params_of(metadata: dict[str, Any]) -> list[str]:
    return [loss["param"] for loss in metadata.get("warnings", [])]


def mark(text: str) -> tuple[str, str]:
    """Return a message that the sandbox journals under a tag of its own, and the tag."""
    tag = uuid4().hex
    return f"{text} [[sandbox tag={tag}]]", tag


def test_a_hint_without_words_is_noted_and_refused_for_the_strict(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    name, value = HINTS.get(wire_format, ("seed", 7))
    lost = [name] if wire_format in HINTS else []
    for stream in (False, True):
        response = caller.chat("hi", model=f"{OTHER}/echo", stream=stream, **{name: value})
        assert response.status_code == 200, response.content
        assert response.headers.get("x-gateway-loss", "") == ", ".join(lost)
        told = response.json()["metadata"] if not stream else chunks_of(response)[-2]["metadata"]
        assert params_of(told) == lost
        text, tag = mark("hi")
        strict = caller.chat(
            text, model=f"{OTHER}/echo", stream=stream, headers={"X-Strict": "true", **ALONE}, **{name: value}
        )
        if lost:
            assert (strict.status_code, strict.json()["error"]["param"]) == (400, name)
            assert caller.sent(tag) == []
        else:
            assert strict.status_code == 200
            assert not stream or chunks_of(strict)


def test_a_field_of_anthropics_alone_is_noted_and_refused_for_the_strict(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path)
    lost = "" if wire_format in ANTHROPICS else "context_management"
    for stream in (False, True):
        fields: dict[str, Any] = {"model": f"{OTHER}/echo", "stream": stream, "context_management": {"edits": []}}
        response = ask_messages(caller, "hi", **fields)
        assert response.status_code == 200, getattr(response, "content", "")
        assert response.headers.get("x-gateway-loss", "") == lost
        if stream:
            assert chunks_of(response)[-1]["type"] == "message_stop"
        text, tag = mark("hi")
        strict = ask_messages(caller, text, headers={"X-Strict": "true", **ALONE}, **fields)
        if lost:
            assert (strict.status_code, strict.json()["error"]["type"]) == (400, "invalid_request_error")
            assert lost in strict.json()["error"]["message"]
            assert caller.sent(tag) == []
        else:
            assert strict.status_code == 200
            assert not stream or chunks_of(strict)


def test_a_schema_is_kept_by_a_tool_that_no_client_ever_sees(
    caller: Caller, wire_format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(caller, wire_format, monkeypatch, tmp_path, structured_outputs=False)
    for surface, stream in product(("openai", "anthropic"), (False, True)):
        text, tag = mark("where?")
        fields: dict[str, Any] = {"model": f"{OTHER}/echo", "stream": stream, "headers": ALONE}
        if surface == "openai":
            said, end = openais_answer(caller.chat(text, response_format=FORM, **fields), stream=stream)
        else:
            form = {"format": {"type": "json_schema", "schema": SCHEMA}}
            response = ask_messages(caller, text, output_config=form, **fields)
            said, end = anthropics_answer(response, stream=stream)
        assert end in {"stop", "end_turn"}, (surface, stream)
        assert json.loads(said).keys() == {"city"}
        [sent] = caller.sent(tag)
        assert "final_answer" in json.dumps(sent["body"])


def openais_answer(response: Any, *, stream: bool) -> tuple[str, str]:
    """Return the text and why it ends; no call may be seen."""
    assert response.status_code == 200, getattr(response, "content", "")
    if not stream:
        [choice] = response.json()["choices"]
        assert "tool_calls" not in choice["message"]
        return choice["message"]["content"], choice["finish_reason"]
    choices = [chunk["choices"][0] for chunk in chunks_of(response)[:-1] if chunk["choices"]]
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    return "".join(choice["delta"].get("content") or "" for choice in choices), choices[-1]["finish_reason"]


def anthropics_answer(response: Any, *, stream: bool) -> tuple[str, str]:
    """Return the text and why it ends; no call may be seen."""
    assert response.status_code == 200, getattr(response, "content", "")
    if stream:
        events = chunks_of(response)
        assert_in_order(events)
        message = message_of(events)
    else:
        message = response.json()
    assert "tool_use" not in [block["type"] for block in message["content"]]
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    return "".join(texts), message["stop_reason"]
