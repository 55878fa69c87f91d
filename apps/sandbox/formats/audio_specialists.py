"""Providers of audio alone: speech and transcripts of Deepgram and ElevenLabs.

Deepgram: `POST /v1/speak`, the voice in the model's name, and `POST /v1/listen`, of a file. ElevenLabs:
`POST /v1/text-to-speech/{voice}`, and `POST /v1/speech-to-text`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.formats.openai_transcriptions import timed_words
from apps.sandbox.generated_media import heard_in, seconds_of
from apps.sandbox.http_framing import read_form
from apps.sandbox.scenario import SandboxRefusal, Scenario

_VOICE = re.compile(r"-[a-z]+-[a-z]{2}$")
_SCHEME = "Token "


class _DeepgramSpeech(Struct, forbid_unknown_fields=True):
    text: str


def find_deepgram_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    presented = headers.get("authorization", "")
    return presented.removeprefix(_SCHEME) if presented.startswith(_SCHEME) else None


def read_deepgram_speech(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    try:
        asked = msgspec.json.decode(body, type=_DeepgramSpeech)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    model = query.get("model", [""])[0]
    if not _VOICE.search(model) or query.get("encoding", ["mp3"])[0] not in {"mp3", "opus", "aac", "flac", "linear16"}:
        raise SandboxRefusal(400, "No such model/language/tier combination found.", code="INVALID_QUERY_PARAMETER")
    return Conversation(model=_VOICE.sub("", model), turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_deepgram_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"err_code": refusal.code or "ERROR", "err_msg": refusal.message, "request_id": "r"})


_DEEPGRAM_SPEECH = SpecialistFormat(
    "/v1/speak", find_deepgram_token, read_deepgram_speech, None, write_deepgram_error, reads_query=True
)


_DEEPGRAM_FIELDS = frozenset({"model", "smart_format", "language", "detect_language", "diarize"})


def read_deepgram_recording(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    if query.keys() - _DEEPGRAM_FIELDS or "model" not in query or not body:
        raise SandboxRefusal(400, "Bad Request: failed to process audio", code="INVALID_QUERY_PARAMETER")
    turns = (Turn("user", heard_in(body)),)
    form = "diarized" if "diarize" in query else ""
    return Conversation(model=query["model"][0], turns=turns, heard=seconds_of(body), form=form)


def write_deepgram_transcript(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body."""
    words: list[dict[str, Any]] = [
        {**word, "punctuated_word": word["word"], "confidence": 0.99} for word in timed_words(answer)
    ]
    if answer.form:
        words = [{**word, "speaker": place % 2} for place, word in enumerate(words)]
    alternative = {"transcript": answer.choices[0].text or "", "confidence": 0.99, "words": words}
    return msgspec.json.encode(
        {
            "metadata": {"request_id": answer.id, "duration": answer.heard, "channels": 1},
            "results": {"channels": [{"alternatives": [alternative], "detected_language": "en"}]},
        }
    )


_DEEPGRAM_TRANSCRIPTS = SpecialistFormat(
    "/v1/listen",
    find_deepgram_token,
    read_deepgram_recording,
    write_deepgram_transcript,
    write_deepgram_error,
    reads_query=True,
)


_FORMATS = frozenset({"mp3_44100_128", "opus_48000_128", "pcm_24000"})


class _Settings(Struct, forbid_unknown_fields=True, frozen=True):
    speed: float = 1.0


class _ElevenlabsSpeech(Struct, forbid_unknown_fields=True):
    text: str
    model_id: str
    voice_settings: _Settings = _Settings()


def find_elevenlabs_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    return headers.get("xi-api-key")


def read_elevenlabs_speech(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    try:
        asked = msgspec.json.decode(body, type=_ElevenlabsSpeech)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"Invalid request: {error}") from error
    if parse_qs(urlsplit(path).query).get("output_format", [""])[0] not in _FORMATS:
        raise SandboxRefusal(422, "Invalid output format", param="output_format")
    return Conversation(model=asked.model_id, turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_elevenlabs_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"detail": {"status": refusal.code or "error", "message": refusal.message}})


_ELEVENLABS_SPEECH = SpecialistFormat(
    "/v1/text-to-speech/[A-Za-z0-9]+/stream",
    find_elevenlabs_token,
    read_elevenlabs_speech,
    None,
    write_elevenlabs_error,
    reads_query=True,
)


_ELEVENLABS_FIELDS = frozenset({"model_id", "language_code", "tag_audio_events", "diarize", "temperature"})


def read_elevenlabs_recording(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    form = read_form(body)
    fields = dict(form.fields)
    if fields.keys() - _ELEVENLABS_FIELDS or "model_id" not in fields:
        raise SandboxRefusal(422, "Invalid request", param="model_id")
    return Conversation(
        model=fields["model_id"],
        turns=(Turn("user", heard_in(form.data)),),
        heard=seconds_of(form.data),
        form="diarized" if fields.get("diarize") == "true" else "",
    )


def write_elevenlabs_transcript(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body: between words are blanks."""
    words: list[dict[str, Any]] = []
    for place, word in enumerate(timed_words(answer)):
        times = {"start": word["start"], "end": word["end"]}
        speaker = {"speaker_id": f"speaker_{place % 2}"} if answer.form else {}
        blank = [{"text": " ", "type": "spacing", "start": word["start"], "end": word["start"]}] if place else []
        words += [*blank, {"text": word["word"], "type": "word", **times, **speaker}]
    return msgspec.json.encode(
        {
            "language_code": "eng",
            "language_probability": 0.98,
            "text": answer.choices[0].text or "",
            "words": words,
            "audio_duration_secs": answer.heard,
        }
    )


_ELEVENLABS_TRANSCRIPTS = SpecialistFormat(
    "/v1/speech-to-text",
    find_elevenlabs_token,
    read_elevenlabs_recording,
    write_elevenlabs_transcript,
    write_elevenlabs_error,
)


FORMATS = (_DEEPGRAM_SPEECH, _DEEPGRAM_TRANSCRIPTS, _ELEVENLABS_SPEECH, _ELEVENLABS_TRANSCRIPTS)
