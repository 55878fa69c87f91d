"""OpenAI's counting of a prompt's tokens: `POST /v1/responses/input_tokens`.

An answer is counted in full and nothing of it told but the prompt's tokens.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.formats import Glance, openai_responses
from apps.sandbox.formats.openai_responses import (
    STREAM_TYPE,
    find_token,
    write_error,
    write_error_event,
    write_events,
    write_models,
)
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

PATH = re.compile("(/openai)?/v1/responses/input_tokens")
# Models are listed elsewhere.
MODELS_PATH = "/v1/responses/models"
# Fields that only concern an answer.
_NOT_COUNTED = ("max_output_tokens", "stream", "temperature", "top_p", "store", "include", "metadata")


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: no prompt is counted without being read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in OpenAI's manner."""
    try:
        wire = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, "The request body is not valid JSON") from error
    for name in _NOT_COUNTED:
        if name in wire:
            raise SandboxRefusal(400, f"Unknown parameter: '{name}'.", param=name)
    return openai_responses.read_request(path, body)


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    tokens = answer.usage.prompt if answer.usage else 0
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": tokens})
