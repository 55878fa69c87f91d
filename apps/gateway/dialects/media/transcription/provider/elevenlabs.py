"""ElevenLabs Scribe, provider side: `/v1/speech-to-text`, a form with a file.

Source: elevenlabs.io/docs/api-reference/speech-to-text/convert and `elevenlabs` for Python
(`types/speech_to_text_chunk_response_model.py`), read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, TranscriptTimed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import read_failure
from apps.gateway.dialects.media.multipart_form import (
    MULTIPART,
    Field,
    FormFile,
    boundary_of,
    write_form,
)
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
_SPEAKER: Final = "speaker_"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/v1/speech-to-text"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_fields(chat, target))}", "Accept": "application/json"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = _fields(chat, target)
    return write_form(fields, boundary_of(fields))


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        answer = None
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        yield unreadable_answer("The provider sent an answer without a transcript")
        return
    timed, language = answer.get("words"), answer.get("language_code")
    words = [word for word in map(_word, timed if isinstance(timed, list) else []) if word is not None]
    # Not every edition of the API states the length: then the last word's end is used.
    duration = seconds_of(answer.get("audio_duration_secs")) or max((word["end"] for word in words), default=None)
    timing = TranscriptTimed(
        segments=segments_of(words),
        words=[{name: value for name, value in word.items() if name != "speaker"} for word in words],
        language=language if isinstance(language, str) else None,
        duration=duration,
    )
    yield from events_of(text, timing, usage_of_seconds(duration))


def _fields(chat: Chat, target: Target) -> list[Field]:
    asked = transcription_of(chat)
    recording = asked.recording
    fields: list[Field] = [("model_id", target.model_name), ("tag_audio_events", "false")]
    if asked.language is not None:
        fields.append(("language_code", asked.language))
    if asked.needs_speakers:
        fields.append(("diarize", "true"))
    if chat.temperature is not None:
        fields.append(("temperature", format(chat.temperature, "g")))
    named = f"audio.{recording.extension}"
    return [*fields, ("file", FormFile(named, recording.media_type, recording.data, recording.digest))]


def _word(given: Any) -> Record | None:
    if not isinstance(given, dict) or given.get("type", "word") != "word":
        return None
    word = timed_word(given.get("text"), given.get("start"), given.get("end"))
    number = str(given.get("speaker_id") or "").removeprefix(_SPEAKER)
    if word is not None and number.isdecimal() and len(number) < 3 and int(number) < 26:
        # Speakers are letters in OpenAI's format.
        word["speaker"] = chr(ord("A") + int(number))
    return word


read_events = as_whole(read_reply)


PROVIDER: Final = ProviderDialect(
    name="elevenlabs",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
