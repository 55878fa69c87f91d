"""Deepgram's transcripts: `POST /v1/listen`, whose body is the file; answers are whole."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.formats.deepgram_speak import find_token, write_error
from apps.sandbox.formats.openai_transcriptions import timed_words
from apps.sandbox.generated_media import heard_in, seconds_of
from apps.sandbox.scenario import SandboxRefusal, Scenario

_KNOWN = frozenset({"model", "smart_format", "language", "detect_language", "diarize"})


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    if query.keys() - _KNOWN or "model" not in query or not body:
        raise SandboxRefusal(400, "Bad Request: failed to process audio", code="INVALID_QUERY_PARAMETER")
    turns = (Turn("user", heard_in(body)),)
    form = "diarized" if "diarize" in query else ""
    return Conversation(model=query["model"][0], turns=turns, heard=seconds_of(body), form=form)


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
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


FORMAT = SpecialistFormat("/v1/listen", find_token, read_request, write_reply, write_error, reads_query=True)
