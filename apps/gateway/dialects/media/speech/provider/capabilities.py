"""Speech facts of a model (`facts.speech`): the formats of its audio, and which options it takes.

docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.audio import SoundFormat, Speech
from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.dialects.fact import fact, facts_reader

SpeechOption = Literal["instructions", "speed", "custom_voice"]


class SpeechCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `speech`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "openai_events", "elevenlabs", "deepgram", "google"],
        fact(
            "the speech dialect: `openai`, which answers with bytes, `openai_events`, which answers with events and "
            "counts tokens, `elevenlabs`, `deepgram`, `google` (`streamGenerateContent`), which has `pcm` and `wav`"
        ),
    ]
    most_characters: Annotated[int, fact("characters of one text", ge=1, le=100_000)] = 4096
    formats: Annotated[
        frozenset[SoundFormat], fact("audio formats, in OpenAI's words: `mp3`, `opus`, `aac`, `flac`, `wav`, `pcm`")
    ] = frozenset({"mp3"})
    takes: Annotated[
        frozenset[SpeechOption],
        fact("`speed`; `custom_voice`: a voice as `{id}`; a hint that is dropped otherwise: `instructions`"),
    ] = frozenset()
    api_version: Annotated[
        str,
        fact(
            "what the address names as `api-version` (`openai`; Azure wants it)",
            default="none",
            pattern=r"^[a-z0-9-]{0,40}$",
        ),
    ] = ""


def capabilities_of(facts: Mapping[str, Any]) -> SpeechCapabilities | None:
    """Return what an offer's facts say of speech, None where they say nothing: it does not speak."""
    return _read(facts)


def speech_of(chat: Chat) -> Speech:
    """Return what a chat says of its speech."""
    return chat.speech or Speech(voice="")


def text_of(chat: Chat) -> str:
    """Return the text to read aloud."""
    return _text_of(chat.messages[0])


def instructions_of(chat: Chat) -> str | None:
    """Return how the text is to be read, in the client's words; None where it says nothing."""
    return _text_of(chat.messages[1]) if len(chat.messages) > 1 else None


def _text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


_read = facts_reader("speech", SpeechCapabilities)
