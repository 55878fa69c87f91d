"""Speech dialects, provider side: write requests, read audio; and how the dialect of an offer is found."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    AudioBytes,
    AudioDelta,
    Event,
    Failed,
    Finished,
    Started,
    UsageReported,
    Waiting,
)
from apps.gateway.canonical.task_options import AudioFormat
from apps.gateway.dialects import Failure, ProviderDialect
from apps.gateway.dialects.chat.google.provider.read_answer import read_events as read_answers
from apps.gateway.dialects.chat.google.wire import encode as google_encode
from apps.gateway.dialects.chat.google.wire import read_failure as read_google_failure
from apps.gateway.dialects.chat.openai.wire import encode as openai_encode
from apps.gateway.dialects.chat.openai.wire import failed, find_failure
from apps.gateway.dialects.chat.openai.wire import read_failure as read_openai_failure
from apps.gateway.dialects.media.speech import (
    capabilities_of,
    instructions_of,
    never_whole,
    options_of,
    read_audio,
    speech_of,
    text_of,
)
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    drain_frames,
    read_answer,
    read_count,
    read_refusal,
    truncated_answer,
    unreadable_answer,
)
from apps.kernel.usage import Usage

# --- OpenAI speech, provider side: `/audio/speech`, answered with the bytes of a file.
#
# Source: OpenAI's API reference, and `openai` 3.52 (`types/audio/speech_create_params.py`). Nothing is counted in such
# an answer: it is paid by the character. The options of a model are facts.


def openai_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    capabilities = capabilities_of(target.facts)
    version = "" if capabilities is None else capabilities.api_version
    return f"/audio/speech?api-version={version}" if version else "/audio/speech"


def accept_any(chat: Chat, target: Target) -> dict[str, str]:
    """Return the header that takes any kind of audio."""
    return {"Accept": "*/*"}


def write_openai_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return openai_encode(fields_of(chat, target))


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


OPENAI: Final = ProviderDialect(
    name="openai",
    framing="raw",
    path=openai_path,
    write_request=write_openai_request,
    read_reply=never_whole,
    read_events=read_audio,
    read_failure=read_openai_failure,
    headers=accept_any,
)


# --- OpenAI speech as events, provider side: audio in base64, and the tokens that it is paid by at its end.
#
# Source: OpenAI's API reference (`speech.audio.delta`, `speech.audio.done`), read 2026-11-23. Used whatever format the
# client takes, since no other answer has the tokens.


def write_openai_request_for_events(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    return openai_encode({**fields_of(chat, target), "stream_format": "sse"})


def read_openai_event_stream(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer; one that breaks off, or holds an error, ends with `Failed`."""
    pieces = iter(frames)
    begun = False
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
        if kind == "speech.audio.delta":
            audio = _audio_of(event)
            if audio is None:
                yield unreadable_answer("The provider sent audio that is not base64")
                return
            if not begun:
                begun = True
                yield Started()
            if audio:
                yield AudioBytes(data=audio)
        elif kind == "speech.audio.done":
            if not begun:
                yield unreadable_answer("The provider sent no audio")
                return
            if (usage := _usage_of(event.get("usage"))) is not None:
                yield UsageReported(usage=usage)
            yield Finished(reason="stop")
            drain_frames(pieces)
            return
        elif failure := _failure_of(event):
            yield failure
            return
    yield truncated_answer()


def _audio_of(event: dict[str, Any]) -> bytes | None:
    written = event.get("audio")
    if not isinstance(written, str):
        return None
    try:
        return b64decode(written, validate=True)
    except ValueError:
        return None


def _failure_of(event: Any) -> Failed | None:
    failure = find_failure(event)
    return None if failure is None else failed(event, failure)


def _usage_of(reported: Any) -> Usage | None:
    """Return the counts: input is text, output is audio."""
    if not isinstance(reported, dict):
        return None
    read, written = (read_count(reported.get(name)) for name in ("input_tokens", "output_tokens"))
    return Usage(input=read, audio_output=written) if written else None


OPENAI_EVENTS: Final = ProviderDialect(
    name="openai_events",
    path=openai_path,
    write_request=write_openai_request_for_events,
    read_reply=never_whole,
    read_events=read_openai_event_stream,
    read_failure=read_openai_failure,
)


# --- Google speech, provider side: `…:streamGenerateContent` with `AUDIO` as the one modality, answered with samples.
#
# Sources: ai.google.dev/gemini-api/docs/speech-generation; docs.cloud.google.com, "Generate speech with Gemini TTS" (of
# Gemini 3.8: `speechConfig.voiceConfig.voice`, a part's `speechMetadata.style`); `google.genai.types` 3.4. Audio is 16
# bits, 24 kHz, mono, in base64 (`audio/L16;codec=pcm;rate=24000`). Read 2026-11-23.


def google_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/models/{quote(target.model_name, safe='')}:streamGenerateContent?alt=sse"


def write_google_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, speech = options_of(chat, target), speech_of(chat)
    part: dict[str, Any] = {"text": text_of(chat)}
    if (instructions := instructions_of(chat)) is not None and "instructions" in capabilities.takes:
        part["speechMetadata"] = {"style": instructions}
    config = {"responseModalities": ["AUDIO"], "speechConfig": {"voiceConfig": {"voice": speech.voice}}}
    return google_encode({"contents": [{"role": "user", "parts": [part]}], "generationConfig": config})


def read_google_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer, the audio as bytes; one without any audio ends with `Failed`."""
    begun = False
    for event in read_answers(frames):
        if isinstance(event, AudioDelta):
            try:
                audio = b64decode(event.data, validate=True)
            except ValueError:
                yield unreadable_answer("The provider sent audio that is not base64")
                return
            if audio:
                if not begun:
                    begun = True
                    yield Started()
                yield AudioBytes(data=audio)
        elif isinstance(event, UsageReported):
            yield UsageReported(usage=_as_speech(event.usage))
        elif isinstance(event, Finished) and not begun:
            why = f", which says {event.native}" if event.native else ""
            yield unreadable_answer(f"The provider sent no audio{why}")
            return
        elif isinstance(event, Waiting | Failed | Finished):
            yield event


def _as_speech(usage: Usage) -> Usage:
    """Return the counts: all that such a model writes is audio, whether it says so or not."""
    return Usage(input=usage.input + usage.cache_read, audio_output=usage.audio_output + usage.output)


GOOGLE: Final = ProviderDialect(
    name="google",
    path=google_path,
    write_request=write_google_request,
    read_reply=never_whole,
    read_events=read_google_events,
    read_failure=read_google_failure,
)


# --- Google speech as a WAV file: a header, then the samples.
#
# How long the audio will be is not known when it begins: the head says the most, as OpenAI's does in a stream.

_RATE: Final = 24_000
_BYTES: Final = 2
_UNKNOWN: Final = 0xFFFF_FFFF
WAV_HEAD: Final = (
    struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE")
    + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _RATE, _RATE * _BYTES, _BYTES, 8 * _BYTES)
    + struct.pack("<4sI", b"data", _UNKNOWN)
)


def read_google_wav_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer, a head ahead of its audio."""
    for event in GOOGLE.read_events(frames):
        yield event
        if type(event) is Started:
            yield AudioBytes(data=WAV_HEAD)


GOOGLE_WAV: Final = replace(GOOGLE, name="google_wav", read_events=read_google_wav_events)


# --- Deepgram speech, provider side: `/v1/speak`, answered with the bytes of a file; the voice is a part of the model.
#
# Source: developers.deepgram.com/reference/text-to-speech/speak-request.

_DEEPGRAM_FORMATS: Final[dict[AudioFormat, dict[str, str]]] = {
    "mp3": {"encoding": "mp3"},
    "opus": {"encoding": "opus", "container": "ogg"},
    "aac": {"encoding": "aac"},
    "flac": {"encoding": "flac"},
    "wav": {"encoding": "linear16", "container": "wav", "sample_rate": "24000"},
    "pcm": {"encoding": "linear16", "container": "none", "sample_rate": "24000"},
}


def deepgram_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    speech = speech_of(chat)
    voice, model = speech.voice, target.model_name
    # A client of Deepgram's own names voices like models: `aura-2-thalia-en`.
    named = voice if voice.startswith(f"{model}-") else f"{model}-{voice}"
    return f"/v1/speak?{urlencode({'model': named, **_DEEPGRAM_FORMATS[speech.response_format]})}"


def write_deepgram_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    return openai_encode({"text": text_of(chat)})


def read_deepgram_failure(status: int, body: bytes) -> Failure:
    """Return what the provider says in an answer that is not 2xx."""
    return read_refusal(status, body, _find_failure)


def _find_failure(answer: Any) -> Failure | None:
    words = answer.get("err_msg") if isinstance(answer, dict) else None
    if not isinstance(words, str) or not words:
        return find_failure(answer)
    code = answer.get("err_code")
    return Failure(message=words[:MAX_ERROR_LENGTH], code=code if isinstance(code, str) else None)


DEEPGRAM: Final = ProviderDialect(
    name="deepgram",
    framing="raw",
    path=deepgram_path,
    write_request=write_deepgram_request,
    read_reply=never_whole,
    read_events=read_audio,
    read_failure=read_deepgram_failure,
    headers=accept_any,
)


# --- ElevenLabs speech, provider side: `/v1/text-to-speech/{voice}/stream`, answered with the bytes of a file.
#
# Source: elevenlabs.io/docs/api-reference/text-to-speech/stream.

# As OpenAI's formats: MP3 of 128 kbit/s, Opus of 128 kbit/s, samples of 16 bits at 24 kHz.
_ELEVENLABS_FORMATS: Final[dict[AudioFormat, str]] = {
    "mp3": "mp3_44100_128",
    "opus": "opus_48000_128",
    "pcm": "pcm_24000",
}


def elevenlabs_path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    speech = speech_of(chat)
    form = _ELEVENLABS_FORMATS.get(speech.response_format, _ELEVENLABS_FORMATS["mp3"])
    return f"/v1/text-to-speech/{quote(speech.voice, safe='')}/stream?output_format={form}"


def write_elevenlabs_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, speech = options_of(chat, target), speech_of(chat)
    wire: dict[str, Any] = {"text": text_of(chat), "model_id": target.model_name}
    if speech.speed is not None and "speed" in capabilities.takes:
        wire["voice_settings"] = {"speed": speech.speed}
    return openai_encode(wire)


ELEVENLABS: Final = ProviderDialect(
    name="elevenlabs",
    framing="raw",
    path=elevenlabs_path,
    write_request=write_elevenlabs_request,
    read_reply=never_whole,
    read_events=read_audio,
    read_failure=read_openai_failure,
    headers=accept_any,
)


PROVIDERS: Final = {one.name: one for one in (OPENAI, OPENAI_EVENTS, GOOGLE, GOOGLE_WAV, DEEPGRAM, ELEVENLABS)}


# Which samples alone are sent in one format, and made a file here.
_MADE_HERE: Final = {("google", "wav"): "google_wav"}


def find_speech_dialect(facts: Mapping[str, Any], form: AudioFormat) -> ProviderDialect | None:
    """Return the dialect in which an offer is asked to read aloud in a format; None where none is stated."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    return PROVIDERS.get(_MADE_HERE.get((capabilities.dialect, form), capabilities.dialect))
