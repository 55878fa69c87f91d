"""Transcripts on their way: what all transcription dialects read alike, and write into requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, Started, TextDelta, TranscriptTimed, UsageReported, Waiting
from apps.gateway.dialects.media.transcription.provider.capabilities import (
    TranscriptionCapabilities,
    capabilities_of,
    prompt_of,
    transcription_of,
)
from apps.gateway.dialects.reading.answer_errors import unreadable_answer
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

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
