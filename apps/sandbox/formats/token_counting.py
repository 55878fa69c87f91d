"""Counting of a prompt's tokens, as Anthropic (at Google Cloud too), Google and OpenAI (for Responses) offer it.

A prompt is answered in full, and the client gets nothing but the number of its tokens.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.formats import (
    WholeReplyFormat,
    anthropic_messages,
    anthropic_vertex,
    google_generate,
    openai_responses,
)
from apps.sandbox.scenario import SandboxRefusal, Scenario

# Fields that only concern an answer.
_NOT_COUNTED_BY_ANTHROPIC = ("max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata")
_NOT_COUNTED_BY_OPENAI = ("max_output_tokens", "stream", "temperature", "top_p", "store", "include", "metadata")


def read_anthropic(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as Anthropic does."""
    wire = _read_json(body, "The request body is not valid JSON")
    for name in _NOT_COUNTED_BY_ANTHROPIC:
        if name in wire:
            raise SandboxRefusal(400, f"{name}: Extra inputs are not permitted")
    if path.startswith("/v1/projects/"):
        anthropic_vertex.check_version(wire)
    wire["max_tokens"] = 1_000_000
    return anthropic_messages.read_request(path, msgspec.json.encode(wire))


def write_anthropic(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    return msgspec.json.encode({"input_tokens": _count(answer)})


def read_google(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner.

    AI Studio takes instructions and tools only within `generateContentRequest`, Google Cloud only without it.
    """
    wire = _read_json(body, "Invalid JSON payload received.")
    studio = path.startswith("/v1beta/models/")
    if studio and "generateContentRequest" in wire:
        inner = wire["generateContentRequest"]
        if not isinstance(inner, dict) or inner.pop("model", None) != path.removeprefix("/v1beta/").partition(":")[0]:
            raise SandboxRefusal(400, "model: must be the one in the path")
        wire = inner
    elif studio and wire.keys() - {"contents"}:
        raise SandboxRefusal(400, f"Invalid JSON payload received. Unknown name {min(wire.keys() - {'contents'})}")
    return google_generate.read_request(path, msgspec.json.encode(wire))


def write_google(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    tokens = _count(answer)
    return msgspec.json.encode(
        {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
    )


def read_openai(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in OpenAI's manner."""
    wire = _read_json(body, "The request body is not valid JSON")
    for name in _NOT_COUNTED_BY_OPENAI:
        if name in wire:
            raise SandboxRefusal(400, f"Unknown parameter: '{name}'.", param=name)
    return openai_responses.read_request(path, body)


def write_openai(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": _count(answer)})


def _read_json(body: bytes, words: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, words) from error


def _count(answer: SandboxAnswer) -> int:
    return answer.usage.prompt if answer.usage else 0


# Anthropic's path, or the model of that name at Google Cloud.
_ANTHROPIC_PATH = rf"/v1/messages/count_tokens|{anthropic_vertex.PLACE}/count-tokens:rawPredict"
FORMATS = (
    WholeReplyFormat(anthropic_vertex, _ANTHROPIC_PATH, read_anthropic, write_anthropic),
    WholeReplyFormat(google_generate, f"{google_generate.PLACES}/[^/]+:countTokens", read_google, write_google),
    WholeReplyFormat(openai_responses, "(/openai)?/v1/responses/input_tokens", read_openai, write_openai),
)
