"""Transcription formats: the facts that a model may state, and transcripts as each reads them.

A request for a transcript is a chat whose `transcription` holds the recording. A format is a provider side for such
chats, found by the name that the data files state under `transcription`; a model that streams is asked in the format of
that name with `_stream` behind it where the client takes a stream. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Target, Text
from apps.gateway.canonical.events import Event, Finished, Started, TextDelta, TranscriptTimed, UsageReported, Waiting
from apps.gateway.canonical.task_options import Transcription
from apps.gateway.dialects import fact, facts_reader
from apps.gateway.dialects.reading.answers import unreadable_answer
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

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


# Bytes of an answer that is one value, though it was asked for as a stream.
_MAX_BYTES: Final = 32 * 1024 * 1024
# Seconds of the longest plausible recording: a larger count is a provider's bug.
_MAX_SECONDS: Final = 1_000_000
# Bounds of a segment that is made of words: seconds and characters after which the next one begins; and the
# characters that end one, the last three in Chinese and Japanese.
_LONG, _WIDE, _ENDS = 7.0, 84, (".", "!", "?", "\u3002", "\uff01", "\uff1f")


def as_whole(read_reply: Callable[[bytes], Iterator[Event]]) -> Callable[[Iterable[bytes]], Iterator[Event]]:
    """Return the reader of an answer that is read piece by piece and is one value all the same."""

    def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
        pieces: list[bytes] = []
        size = 0
        for piece in frames:
            if not piece:
                yield Waiting()
                continue
            size += len(piece)
            if size > _MAX_BYTES:
                yield unreadable_answer("The provider's transcript is too long")
                return
            pieces.append(piece)
        yield from read_reply(b"".join(pieces))

    return read_events


def events_of(text: str, timing: TranscriptTimed, usage: Usage | None) -> Iterator[Event]:
    """Yield the events of a whole transcript."""
    yield Started()
    yield TextDelta(text=text)
    if timing != TranscriptTimed():
        yield timing
    yield Finished(reason="stop")
    if usage is not None:
        yield UsageReported(usage=usage)


def usage_of_seconds(seconds: Any) -> Usage | None:
    """Return the length of the audio, None where it is not stated."""
    length = seconds_of(seconds)
    return Usage(audio_milliseconds=round(length * 1000)) if length else None


def seconds_of(value: Any) -> float | None:
    """Return a length or a time in seconds, None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        return None
    return float(value)


def segments_of(words: Iterable[Record]) -> list[Record]:
    """Return words as segments, each a sentence or as much as is said at a time, with its speaker where words have one.

    `words` have `word`, `start` and `end`, maybe `speaker`.
    """
    segments: list[Record] = []
    current: list[Record] = []

    def close() -> None:
        if current:
            speaker = {"speaker": current[0]["speaker"]} if "speaker" in current[0] else {}
            text = " ".join(word["word"] for word in current)
            times = {"start": current[0]["start"], "end": current[-1]["end"]}
            segments.append({"id": len(segments), **times, "text": text, **speaker})
            current.clear()

    for word in words:
        if current and (
            word.get("speaker") != current[0].get("speaker")
            or word["end"] - current[0]["start"] > _LONG
            or sum(len(one["word"]) + 1 for one in current) + len(word["word"]) > _WIDE
        ):
            close()
        current.append(word)
        if word["word"].endswith(_ENDS):
            close()
    close()
    return segments


def timed_word(word: Any, start: Any, end: Any) -> Record | None:
    """Return a word with its times, None for other values."""
    begins, ends = seconds_of(start), seconds_of(end)
    if not isinstance(word, str) or not word or begins is None or ends is None:
        return None
    return {"word": word, "start": begins, "end": ends}


def options_of(chat: Chat, target: Target) -> TranscriptionCapabilities:
    """Return what a target can do; note the hints that it does not take."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        raise InvalidRequest("This model writes no transcripts", code="unsupported_feature", param="model")
    asked = transcription_of(chat)
    hints = (
        ("prompt", prompt_of(chat)),
        ("temperature", chat.temperature),
        ("chunking_strategy", asked.chunking_strategy),
    )
    for name, value in hints:
        if value is not None and name not in capabilities.takes:
            target.note_dropped(name, "this model's provider takes no such option")
    return capabilities
