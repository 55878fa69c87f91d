"""Transcription facts of a model (`facts.transcription`): what its transcripts tell, and which options it takes.

docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.audio import Transcription
from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.dialects.fact import fact, facts_reader
from apps.kernel.errors import InvalidRequest

TranscriptionOption = Literal[
    "chunking_strategy",
    "logprobs",
    "prompt",
    "response_format",
    "segments",
    "speakers",
    "stream",
    "temperature",
    "translation",
    "words",
]


class TranscriptionCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `transcription`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "elevenlabs", "deepgram"],
        fact("the transcription dialect: `openai`, which Groq and Mistral follow, `elevenlabs`, `deepgram`"),
    ]
    takes: Annotated[
        frozenset[TranscriptionOption],
        fact(
            "parts of its transcripts: `segments` and `words` with times, `speakers`, `logprobs`; `translation` into "
            "English; of `openai` also `stream`, and `response_format`: takes the format of its answer; hints that are "
            "dropped otherwise: `prompt`, `temperature`, `chunking_strategy`"
        ),
    ] = frozenset()
    verbose: Annotated[
        bool, fact("is always asked for the form `verbose_json` (`openai`), as only that tells the recording's length")
    ] = False
    api_version: Annotated[
        str,
        fact(
            "what the address names as `api-version` (`openai`; Azure wants it)",
            default="none",
            pattern=r"^[a-z0-9-]{0,40}$",
        ),
    ] = ""


def capabilities_of(facts: Mapping[str, Any]) -> TranscriptionCapabilities | None:
    """Return what an offer's facts say of transcripts, None where they say nothing: it writes none."""
    return _read(facts)


def transcription_of(chat: Chat) -> Transcription:
    """Return what a chat says of its transcript. Raises InvalidRequest for one that asks for none."""
    if chat.transcription is None:
        raise InvalidRequest("Required", param="file")
    return chat.transcription


def prompt_of(chat: Chat) -> str | None:
    """Return the words that guide the model, None where there are none."""
    texts = [part.text for message in chat.messages for part in message.parts if isinstance(part, Text)]
    return "".join(texts) or None


_read = facts_reader("transcription", TranscriptionCapabilities)
