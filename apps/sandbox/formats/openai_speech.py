"""OpenAI's speech: `POST /v1/audio/speech`; answers are streams, of sound or of events with sound in them."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_chat import MODELS_PATH, find_token, write_error, write_models
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

PATH = re.compile("/v1/audio/speech")
# Content types of both kinds of answers.
STREAM_TYPE = "application/octet-stream"
_EVENTS = "sse"


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: every request is read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    except msgspec.DecodeError as error:
        raise SandboxRefusal(400, "We could not parse the JSON body of your request.") from error
    instructions = (Turn("system", asked.instructions),) if asked.instructions else ()
    return Conversation(
        model=asked.model,
        turns=(*instructions, Turn("user", asked.input)),
        streamed=True,
        speaks=True,
        form=asked.stream_format,
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return all of the audio, which no client can request as a whole."""
    return b"".join(answer.sound)


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the pieces of the sound, or the events that they are in."""
    if answer.form != _EVENTS:
        return list(answer.sound)
    events = [{"type": "speech.audio.delta", "audio": b64encode(block).decode()} for block in answer.sound]
    done: dict[str, Any] = {"type": "speech.audio.done"}
    if (usage := answer.usage) is not None:
        counts = {"input_tokens": usage.prompt, "output_tokens": usage.completion}
        done["usage"] = {**counts, "total_tokens": usage.prompt + usage.completion}
    return [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in (*events, done)]


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return an error instead of audio."""
    return b"data: " + write_error(refusal) + b"\n\n"


class _Voice(Struct, forbid_unknown_fields=True):
    id: str


class _Request(Struct, forbid_unknown_fields=True):
    model: str
    input: Annotated[str, Meta(min_length=1, max_length=4096)]
    voice: str | _Voice
    instructions: str = ""
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: Annotated[float, Meta(ge=0.25, le=4)] = 1.0
    stream_format: Literal["sse", "audio"] = "audio"
