"""Google's counting of a prompt's tokens: `POST …/models/<model>:countTokens`, at AI Studio and at Google Cloud.

An answer is counted in full and nothing of it told but the prompt's tokens.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.formats import Glance, google_generate
from apps.sandbox.formats.google_generate import (
    MODELS_PATH,
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

PATH = re.compile(f"{google_generate.PLACES}/[^/]+:countTokens")


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: no prompt is counted without being read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner.

    AI Studio takes instructions and tools only within `generateContentRequest`, Google Cloud only without it.
    """
    try:
        wire = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    studio = path.startswith("/v1beta/models/")
    if studio and "generateContentRequest" in wire:
        inner = wire["generateContentRequest"]
        if not isinstance(inner, dict) or inner.pop("model", None) != path.removeprefix("/v1beta/").partition(":")[0]:
            raise SandboxRefusal(400, "model: must be the one in the path")
        wire = inner
    elif studio and wire.keys() - {"contents"}:
        raise SandboxRefusal(400, f"Invalid JSON payload received. Unknown name {min(wire.keys() - {'contents'})}")
    return google_generate.read_request(path, msgspec.json.encode(wire))


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the count."""
    tokens = answer.usage.prompt if answer.usage else 0
    return msgspec.json.encode(
        {"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
    )
