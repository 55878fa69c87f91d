"""Deepgram transcription, provider side: `/v1/listen`, whose body is the file.

Source: developers.deepgram.com/reference/speech-to-text/listen-pre-recorded, read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, TranscriptTimed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.media.speech.provider.deepgram import read_failure
from apps.gateway.dialects.media.transcription import (
    as_whole,
    events_of,
    options_of,
    seconds_of,
    segments_of,
    timed_word,
    transcription_of,
    usage_of_seconds,
)
from apps.gateway.dialects.reading.answer_errors import read_answer, unreadable_answer
from apps.gateway.dialects.reading.fields import Record

FRAMING: Final = "raw"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    asked = transcription_of(chat)
    query = {"model": target.model_name, "smart_format": "true"}
    query |= {"detect_language": "true"} if asked.language is None else {"language": asked.language}
    query |= {"diarize": "true"} if asked.needs_speakers else {}
    return f"/v1/listen?{urlencode(query)}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the file."""
    return {"Content-Type": transcription_of(chat).recording.media_type, "Accept": "application/json"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request: the file as it is."""
    options_of(chat, target)
    return transcription_of(chat).recording.data


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read ends with `Failed`."""
    try:
        answer = read_answer(body)
        channel = answer["results"]["channels"][0]
        alternative = channel["alternatives"][0]
        text, timed = alternative["transcript"], alternative.get("words")
        metadata, language = answer.get("metadata"), channel.get("detected_language")
    except (ValueError, LookupError, TypeError, AttributeError):
        yield unreadable_answer("The provider sent an answer without a transcript")
        return
    if not isinstance(text, str):
        yield unreadable_answer("The provider sent an answer without a transcript")
        return
    duration = metadata.get("duration") if isinstance(metadata, dict) else None
    words = [word for word in map(_word, timed if isinstance(timed, list) else []) if word is not None]
    timing = TranscriptTimed(
        segments=segments_of(words),
        words=[{name: value for name, value in word.items() if name != "speaker"} for word in words],
        language=language if isinstance(language, str) else None,
        duration=seconds_of(duration),
    )
    yield from events_of(text, timing, usage_of_seconds(duration))


def _word(given: Any) -> Record | None:
    if not isinstance(given, dict):
        return None
    word = timed_word(given.get("punctuated_word") or given.get("word"), given.get("start"), given.get("end"))
    speaker = given.get("speaker")
    if word is not None and isinstance(speaker, int) and 0 <= speaker < 26:
        # Speakers are letters in OpenAI's format.
        word["speaker"] = chr(ord("A") + speaker)
    return word


read_events = as_whole(read_reply)


PROVIDER: Final = ProviderDialect(
    name="deepgram",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
