"""Canonical audio options: the parts of a chat that only a request for speech or for a transcript has."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

AudioFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]


class Speech(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a text is to be read aloud; None is "not said" or "as the model likes".

    The text is the chat's first message, instructions on how to read it are the second.
    """

    voice: str
    # Whether the voice is one of the client's own at the provider, named by its id.
    is_custom_voice: bool = False
    response_format: AudioFormat = "mp3"
    # 1 is the voice's own.
    speed: float | None = None
    # Whether the client takes events with base64 instead of the audio's bytes.
    events: bool = False


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A file of audio; `extension` tells its format, without a dot, `digest` is the SHA-256 of its bytes, in hex.

    `milliseconds` is about how long it is, and `max_milliseconds` how long it is at most: the same where its own head
    says it.
    """

    extension: str
    media_type: str
    data: bytes
    digest: str
    milliseconds: int
    max_milliseconds: int


class Transcription(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A request to transcribe audio; None is "not stated" or "as the model likes".

    Words that guide the model are the chat's one message, which has none where there are none.
    """

    recording: Recording
    # Whether the transcript is to be in English, whatever is spoken.
    translates: bool = False
    # ISO 639-1.
    language: str | None = None
    response_format: TranscriptFormat = "json"
    words: bool = False
    segments: bool = False
    logprobs: bool = False
    # `auto`, or settings of voice detection as OpenAI writes them.
    chunking_strategy: str | dict[str, Any] | None = None

    @property
    def needs_segments(self) -> bool:
        """Whether the answer tells when something was said."""
        return self.segments or self.response_format in {"srt", "vtt", "verbose_json"}

    @property
    def needs_speakers(self) -> bool:
        """Whether the answer tells who said what."""
        return self.response_format == "diarized_json"
