"""ElevenLabs: speech (`POST /v1/text-to-speech/{voice}/stream`) and transcripts (`POST /v1/speech-to-text`, a form)."""

from __future__ import annotations

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

_FORMATS = frozenset({"mp3_44100_128", "opus_48000_128", "pcm_24000"})


class _Settings(Struct, forbid_unknown_fields=True, frozen=True):
    speed: float = 1.0


class _SpeechRequest(Struct, forbid_unknown_fields=True):
    text: str
    model_id: str
    voice_settings: _Settings = _Settings()


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    return headers.get("xi-api-key")


def read_speech(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    try:
        asked = msgspec.json.decode(body, type=_SpeechRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"Invalid request: {error}") from error
    if parse_qs(urlsplit(path).query).get("output_format", [""])[0] not in _FORMATS:
        raise SandboxRefusal(422, "Invalid output format", param="output_format")
    return Conversation(model=asked.model_id, turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"detail": {"status": refusal.code or "error", "message": refusal.message}})


_SPEECH = SpecialistFormat(
    "/v1/text-to-speech/[A-Za-z0-9]+/stream", find_token, read_speech, None, write_error, reads_query=True
)


_KNOWN = frozenset({"model_id", "language_code", "tag_audio_events", "diarize", "temperature"})


def read_recording(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    form = read_form(body)
    fields = dict(form.fields)
    if fields.keys() - _KNOWN or "model_id" not in fields:
        raise SandboxRefusal(422, "Invalid request", param="model_id")
    return Conversation(
        model=fields["model_id"],
        turns=(Turn("user", heard_in(form.data)),),
        heard=seconds_of(form.data),
        form="diarized" if fields.get("diarize") == "true" else "",
    )


def write_transcript(answer: SandboxAnswer, scenario: Scenario) -> bytes:
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


_TRANSCRIPTS = SpecialistFormat("/v1/speech-to-text", find_token, read_recording, write_transcript, write_error)


FORMATS = (_SPEECH, _TRANSCRIPTS)
