"""Anthropic's counting of a prompt's tokens: `POST /v1/messages/count_tokens`; at Google Cloud a model of that name.

An answer is counted in full and nothing of it told but the prompt's tokens.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.formats import Glance, anthropic_messages, anthropic_vertex
from apps.sandbox.formats.anthropic_messages import (
    STREAM_TYPE,
    write_error,
    write_error_event,
    write_events,
    write_models,
)
from apps.sandbox.formats.anthropic_vertex import MODELS_PATH, find_token
from apps.sandbox.scenario import SandboxRefusal, Scenario

__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

_AT_GOOGLE = rf"{anthropic_vertex.PLACE}/count-tokens:rawPredict"
PATH = re.compile(f"/v1/messages/count_tokens|{_AT_GOOGLE}")
# Fields that only concern an answer.
_NOT_COUNTED = ("max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata")


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: no prompt is counted without being read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as Anthropic does."""
    try:
        wire = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, "The request body is not valid JSON") from error
    for name in _NOT_COUNTED:
        if name in wire:
            raise SandboxRefusal(400, f"{name}: Extra inputs are not permitted")
    if path.startswith("/v1/projects/"):
        anthropic_vertex.check_version(wire)
    wire["max_tokens"] = 1_000_000
    return anthropic_messages.read_request(path, msgspec.json.encode(wire))


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    return msgspec.json.encode({"input_tokens": answer.usage.prompt if answer.usage else 0})
