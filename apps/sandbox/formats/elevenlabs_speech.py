"""ElevenLabs's speech: `POST /v1/text-to-speech/{voice}/stream`; answers are sound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_chat import write_models
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

__all__ = [
    "MODELS_PATH",
    "PATH",
    "READS_QUERY",
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

PATH = re.compile("/v1/text-to-speech/[A-Za-z0-9]+/stream")
MODELS_PATH = "/v1/text-to-speech/models"
STREAM_TYPE = "application/octet-stream"
READS_QUERY = True
_FORMATS = frozenset({"mp3_44100_128", "opus_48000_128", "pcm_24000"})


class _Settings(Struct, forbid_unknown_fields=True, frozen=True):
    speed: float = 1.0


class _Request(Struct, forbid_unknown_fields=True):
    text: str
    model_id: str
    voice_settings: _Settings = _Settings()


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    return headers.get("xi-api-key")


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: every request is read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"Invalid request: {error}") from error
    if parse_qs(urlsplit(path).query).get("output_format", [""])[0] not in _FORMATS:
        raise SandboxRefusal(422, "Invalid output format", param="output_format")
    return Conversation(model=asked.model_id, turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return all of the sound; nobody can ask for it as a whole, though."""
    return b"".join(answer.sound)


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the pieces of the sound."""
    return list(answer.sound)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"detail": {"status": refusal.code or "error", "message": refusal.message}})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return an error in the place of sound."""
    return write_error(refusal)
