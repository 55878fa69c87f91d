"""OpenAI speech, provider side: `/audio/speech`, answered with the bytes of a file.

Source: OpenAI's API reference, and `openai` 3.52 (`types/audio/speech_create_params.py`). Nothing is counted in such an
answer: it is paid by the character. The options of a model are facts.
"""
# alone: a format, found by the name that data files state

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.media.speech import (
    capabilities_of,
    instructions_of,
    never_whole,
    options_of,
    read_audio,
    speech_of,
    text_of,
)

FRAMING: Final = "raw"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    capabilities = capabilities_of(target.facts)
    version = "" if capabilities is None else capabilities.api_version
    return f"/audio/speech?api-version={version}" if version else "/audio/speech"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the header that takes any kind of audio."""
    return {"Accept": "*/*"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return encode(fields_of(chat, target))


def fields_of(chat: Chat, target: Target) -> dict[str, Any]:
    """Return the fields of the request."""
    capabilities, speech = options_of(chat, target), speech_of(chat)
    wire: dict[str, Any] = {
        "model": target.model_name,
        "input": text_of(chat),
        "voice": {"id": speech.voice} if speech.is_custom_voice else speech.voice,
        "response_format": speech.response_format,
    }
    if (instructions := instructions_of(chat)) is not None and "instructions" in capabilities.takes:
        wire["instructions"] = instructions
    if speech.speed is not None and "speed" in capabilities.takes:
        wire["speed"] = speech.speed
    return wire


read_events = read_audio
read_reply = never_whole


PROVIDER: Final = ProviderDialect(
    name="openai",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
