"""ElevenLabs's transcripts: `POST /v1/speech-to-text`, a form with a file; answers are whole."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.formats.elevenlabs_speech import find_token, write_error
from apps.sandbox.formats.openai_transcriptions import timed_words
from apps.sandbox.forms import read_form
from apps.sandbox.generated_media import heard_in, seconds_of
from apps.sandbox.scenario import SandboxRefusal, Scenario

_KNOWN = frozenset({"model_id", "language_code", "tag_audio_events", "diarize", "temperature"})


def read_request(path: str, body: bytes) -> Conversation:
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


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
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


FORMAT = SpecialistFormat("/v1/speech-to-text", find_token, read_request, write_reply, write_error)
