"""Deepgram: speech (`POST /v1/speak`, the voice in the model's name) and transcripts (`POST /v1/listen`, of a file)."""

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
from apps.sandbox.scenario import SandboxRefusal, Scenario

_VOICE = re.compile(r"-[a-z]+-[a-z]{2}$")
_SCHEME = "Token "


class _SpeechRequest(Struct, forbid_unknown_fields=True):
    text: str


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    presented = headers.get("authorization", "")
    return presented.removeprefix(_SCHEME) if presented.startswith(_SCHEME) else None


def read_speech(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    try:
        asked = msgspec.json.decode(body, type=_SpeechRequest)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    model = query.get("model", [""])[0]
    if not _VOICE.search(model) or query.get("encoding", ["mp3"])[0] not in {"mp3", "opus", "aac", "flac", "linear16"}:
        raise SandboxRefusal(400, "No such model/language/tier combination found.", code="INVALID_QUERY_PARAMETER")
    return Conversation(model=_VOICE.sub("", model), turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"err_code": refusal.code or "ERROR", "err_msg": refusal.message, "request_id": "r"})


_SPEECH = SpecialistFormat("/v1/speak", find_token, read_speech, None, write_error, reads_query=True)


_KNOWN = frozenset({"model", "smart_format", "language", "detect_language", "diarize"})


def read_recording(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    if query.keys() - _KNOWN or "model" not in query or not body:
        raise SandboxRefusal(400, "Bad Request: failed to process audio", code="INVALID_QUERY_PARAMETER")
    turns = (Turn("user", heard_in(body)),)
    form = "diarized" if "diarize" in query else ""
    return Conversation(model=query["model"][0], turns=turns, heard=seconds_of(body), form=form)


def write_transcript(answer: SandboxAnswer, scenario: Scenario) -> bytes:
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


_TRANSCRIPTS = SpecialistFormat(
    "/v1/listen", find_token, read_recording, write_transcript, write_error, reads_query=True
)


FORMATS = (_SPEECH, _TRANSCRIPTS)
