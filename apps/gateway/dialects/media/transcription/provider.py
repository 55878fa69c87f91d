"""Transcription dialects, provider side: write requests, read transcripts; and how the dialect of an offer is found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    Logprobs,
    Started,
    TextDelta,
    TranscriptTimed,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media import MULTIPART, Field, FormFile, boundary_of, write_form
from apps.gateway.dialects.media.speech.provider import read_deepgram_failure
from apps.gateway.dialects.media.transcription import (
    TranscriptionCapabilities,
    as_whole,
    capabilities_of,
    events_of,
    options_of,
    prompt_of,
    seconds_of,
    segments_of,
    timed_word,
    transcription_of,
    usage_of_seconds,
)
from apps.gateway.dialects.reading.answers import (
    drain_frames,
    read_answer,
    read_count,
    truncated_answer,
    unreadable_answer,
)
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.usage import Usage

# --- OpenAI transcription, provider side: `/audio/transcriptions` and `/audio/translations`, forms with a file.
#
# Sources: OpenAI's API reference and `openai` 3.52 (`types/audio`), console.groq.com/docs/speech-to-text, and
# `mistralai` 3.7 (`AudioTranscriptionRequest`), November 2026. The options of a model are facts
# (docs/adding-a-provider.md).


def openai_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    kind = "translations" if transcription_of(chat).translates else "transcriptions"
    capabilities = capabilities_of(target.facts)
    version = "" if capabilities is None else capabilities.api_version
    return f"/audio/{kind}?api-version={version}" if version else f"/audio/{kind}"


def openai_headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {
        "Content-Type": f"{MULTIPART}; boundary={boundary_of(fields_of(chat, target))}",
        "Accept": "application/json",
    }


def write_openai_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = fields_of(chat, target)
    return write_form(fields, boundary_of(fields))


def fields_of(chat: Chat, target: Target) -> list[Field]:
    """Return the fields of the form, the file last."""
    asked, capabilities = (
        transcription_of(chat),
        capabilities_of(target.facts) or TranscriptionCapabilities(dialect="openai"),
    )
    recording, form = asked.recording, _form_of(chat, capabilities)
    fields: list[Field] = [("model", target.model_name)]
    if "response_format" in capabilities.takes:
        fields.append(("response_format", form))
    if asked.language is not None and not asked.translates:
        fields.append(("language", asked.language))
    if (prompt := prompt_of(chat)) is not None and "prompt" in capabilities.takes:
        fields.append(("prompt", prompt))
    if chat.temperature is not None and "temperature" in capabilities.takes:
        fields.append(("temperature", format(chat.temperature, "g")))
    if asked.words and form == "verbose_json" and not asked.translates:
        fields += [("timestamp_granularities[]", one) for one in ("word", "segment")]
    if asked.logprobs:
        fields.append(("include[]", "logprobs"))
    # A model that separates speakers requires a chunking strategy for recordings over half a minute.
    strategy = asked.chunking_strategy or ("auto" if "speakers" in capabilities.takes else None)
    if strategy is not None and "chunking_strategy" in capabilities.takes:
        fields.append(("chunking_strategy", strategy if isinstance(strategy, str) else encode(strategy).decode()))
    named = f"audio.{recording.extension}"
    return [*fields, ("file", FormFile(named, recording.media_type, recording.data, recording.digest))]


def read_openai_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read, or holds an error, ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        yield failure_of(answer) or unreadable_answer("The provider sent an answer without a transcript")
        return
    if isinstance(logprobs := answer.get("logprobs"), list) and logprobs:
        yield Logprobs(logprobs={"content": logprobs})
    yield from events_of(text.strip(), timing_of(answer), usage_of(answer))


def failure_of(answer: Any) -> Failed | None:
    """Return the failure that an answer holds, None where it holds none."""
    failure = find_failure(answer)
    return None if failure is None else failed(answer, failure)


def timing_of(answer: dict[str, Any]) -> TranscriptTimed:
    """Return what an answer tells beside its words; of a segment that has no times, nothing."""
    language, segments, words = (answer.get(name) for name in ("language", "segments", "words"))
    timed = [
        timed_word(word.get("word"), word.get("start"), word.get("end"))
        for word in (words if isinstance(words, list) else [])
        if isinstance(word, dict)
    ]
    return TranscriptTimed(
        segments=[one for one in (segments if isinstance(segments, list) else []) if is_segment(one)],
        words=[word for word in timed if word is not None],
        language=language if isinstance(language, str) and language else None,
        duration=seconds_of(answer.get("duration")),
    )


def is_segment(value: Any) -> bool:
    """Return whether a value is a text with its times."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    return None not in (seconds_of(value.get("start")), seconds_of(value.get("end")))


def usage_of(answer: dict[str, Any]) -> Usage | None:
    """Return the usage: tokens or the length of audio, in OpenAI's or Mistral's fields; else the recording's length."""
    reported = answer.get("usage")
    if not isinstance(reported, dict):
        return usage_of_seconds(answer.get("duration"))
    if reported.get("type") == "tokens":
        read, written = read_count(reported.get("input_tokens")), read_count(reported.get("output_tokens"))
        parts = reported.get("input_token_details")
        # Input is audio, except the text of a prompt.
        text = min(read_count(parts.get("text_tokens")), read) if isinstance(parts, dict) else 0
        return Usage(input=text, audio_input=read - text, output=written) if read or written else None
    seconds = reported.get("seconds", reported.get("prompt_audio_seconds"))
    return usage_of_seconds(seconds) or usage_of_seconds(answer.get("duration"))


def _form_of(chat: Chat, capabilities: TranscriptionCapabilities) -> str:
    asked = transcription_of(chat)
    if asked.needs_speakers:
        return "diarized_json"
    return "verbose_json" if capabilities.verbose or asked.needs_segments or asked.words else "json"


read_openai_events = as_whole(read_openai_reply)


OPENAI: Final = ProviderDialect(
    name="openai",
    framing="raw",
    path=openai_path,
    write_request=write_openai_request,
    read_reply=read_openai_reply,
    read_events=read_openai_events,
    read_failure=read_failure,
    headers=openai_headers,
)


# --- OpenAI transcription as a stream, provider side: the words as they are written down, and the tokens at their end.
#
# Source: OpenAI's API reference and `openai` 3.52 (`types/audio/transcription_stream_event.py`).


def openai_stream_headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_streamed(chat, target))}"}


def write_openai_stream_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = _streamed(chat, target)
    return write_form(fields, boundary_of(fields))


def read_openai_stream_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer; one that breaks off, or holds an error, ends with `Failed`."""
    pieces = iter(frames)
    begun = has_text = False
    for frame in pieces:
        if not frame:
            yield Waiting()
            continue
        try:
            event = read_answer(frame)
        except ValueError:
            yield unreadable_answer("The provider sent invalid JSON")
            return
        kind = event.get("type") if isinstance(event, dict) else None
        if not begun and kind in _KINDS:
            begun = True
            yield Started()
        if kind == "transcript.text.delta" and isinstance(event.get("delta"), str):
            has_text = True
            yield from _logprobs_of(event)
            yield TextDelta(text=event["delta"])
        elif kind == "transcript.text.segment" and is_segment(event):
            yield TranscriptTimed(segments=[event])
        elif kind == "transcript.text.done":
            if not has_text and isinstance(text := event.get("text"), str) and text:
                yield TextDelta(text=text)
            if (usage := usage_of(event)) is not None:
                yield UsageReported(usage=usage)
            yield Finished(reason="stop")
            drain_frames(pieces)
            return
        elif failure := failure_of(event):
            yield failure
            return
    yield truncated_answer()


# No set: what a provider sends may be a list, which no set looks up.
_KINDS: Final = ("transcript.text.delta", "transcript.text.segment", "transcript.text.done")


def _streamed(chat: Chat, target: Target) -> list[Field]:
    return [("stream", "true"), *fields_of(chat, target)]


def _logprobs_of(event: dict[str, Any]) -> Iterator[Event]:
    logprobs = event.get("logprobs")
    if isinstance(logprobs, list) and logprobs:
        yield Logprobs(logprobs={"content": logprobs})


OPENAI_STREAM: Final = ProviderDialect(
    name="openai_stream",
    path=openai_path,
    write_request=write_openai_stream_request,
    read_reply=read_openai_reply,
    read_events=read_openai_stream_events,
    read_failure=read_failure,
    headers=openai_stream_headers,
)


# --- Deepgram transcription, provider side: `/v1/listen`, whose body is the file.
#
# Source: developers.deepgram.com/reference/speech-to-text/listen-pre-recorded, read 2026-11-23.


def deepgram_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    asked = transcription_of(chat)
    query = {"model": target.model_name, "smart_format": "true"}
    query |= {"detect_language": "true"} if asked.language is None else {"language": asked.language}
    query |= {"diarize": "true"} if asked.needs_speakers else {}
    return f"/v1/listen?{urlencode(query)}"


def deepgram_headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the file."""
    return {"Content-Type": transcription_of(chat).recording.media_type, "Accept": "application/json"}


def write_deepgram_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request: the file as it is."""
    options_of(chat, target)
    return transcription_of(chat).recording.data


def read_deepgram_reply(body: bytes) -> Iterator[Event]:
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
    words = [word for word in map(_deepgram_word, timed if isinstance(timed, list) else []) if word is not None]
    timing = TranscriptTimed(
        segments=segments_of(words),
        words=[{name: value for name, value in word.items() if name != "speaker"} for word in words],
        language=language if isinstance(language, str) else None,
        duration=seconds_of(duration),
    )
    yield from events_of(text, timing, usage_of_seconds(duration))


def _deepgram_word(given: Any) -> Record | None:
    if not isinstance(given, dict):
        return None
    word = timed_word(given.get("punctuated_word") or given.get("word"), given.get("start"), given.get("end"))
    speaker = given.get("speaker")
    if word is not None and isinstance(speaker, int) and 0 <= speaker < 26:
        # Speakers are letters in OpenAI's format.
        word["speaker"] = chr(ord("A") + speaker)
    return word


read_deepgram_events = as_whole(read_deepgram_reply)


DEEPGRAM: Final = ProviderDialect(
    name="deepgram",
    framing="raw",
    path=deepgram_path,
    write_request=write_deepgram_request,
    read_reply=read_deepgram_reply,
    read_events=read_deepgram_events,
    read_failure=read_deepgram_failure,
    headers=deepgram_headers,
)


# --- ElevenLabs Scribe, provider side: `/v1/speech-to-text`, a form with a file.
#
# Source: elevenlabs.io/docs/api-reference/speech-to-text/convert and `elevenlabs` for Python
# (`types/speech_to_text_chunk_response_model.py`), read 2026-11-23.

_SPEAKER: Final = "speaker_"


def elevenlabs_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/v1/speech-to-text"


def elevenlabs_headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_fields(chat, target))}", "Accept": "application/json"}


def write_elevenlabs_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = _fields(chat, target)
    return write_form(fields, boundary_of(fields))


def read_elevenlabs_reply(body: bytes) -> Iterator[Event]:
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
    words = [word for word in map(_elevenlabs_word, timed if isinstance(timed, list) else []) if word is not None]
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


def _elevenlabs_word(given: Any) -> Record | None:
    if not isinstance(given, dict) or given.get("type", "word") != "word":
        return None
    word = timed_word(given.get("text"), given.get("start"), given.get("end"))
    number = str(given.get("speaker_id") or "").removeprefix(_SPEAKER)
    if word is not None and number.isdecimal() and len(number) < 3 and int(number) < 26:
        # Speakers are letters in OpenAI's format.
        word["speaker"] = chr(ord("A") + int(number))
    return word


read_elevenlabs_events = as_whole(read_elevenlabs_reply)


ELEVENLABS: Final = ProviderDialect(
    name="elevenlabs",
    framing="raw",
    path=elevenlabs_path,
    write_request=write_elevenlabs_request,
    read_reply=read_elevenlabs_reply,
    read_events=read_elevenlabs_events,
    read_failure=read_failure,
    headers=elevenlabs_headers,
)


PROVIDERS: Final = {one.name: one for one in (OPENAI, OPENAI_STREAM, DEEPGRAM, ELEVENLABS)}


def find_transcription_dialect(facts: Mapping[str, Any], *, streamed: bool) -> ProviderDialect | None:
    """Return the format in which an offer is asked for a transcript; None where none is stated."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    name = f"{capabilities.dialect}_stream" if streamed and "stream" in capabilities.takes else capabilities.dialect
    return PROVIDERS.get(name)
