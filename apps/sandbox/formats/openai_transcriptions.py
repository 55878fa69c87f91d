"""OpenAI's transcripts: `POST /v1/audio/transcriptions` and `/v1/audio/translations`, forms with a file.

Models whose name ends with `-tokens` count tokens, stream, and have no form but `json` and `diarized_json`; the others
count seconds, and have all that tell times.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxAnswer, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.openai_chat import MODELS_PATH, find_token, write_error, write_error_event, write_models
from apps.sandbox.generated_media import heard_in, seconds_of
from apps.sandbox.http_framing import read_form
from apps.sandbox.scenario import SandboxRefusal, Scenario

__all__ = [
    "MODELS_PATH",
    "PATH",
    "STREAM_TYPE",
    "find_token",
    "glance",
    "read_request",
    "timed_words",
    "write_error",
    "write_error_event",
    "write_events",
    "write_models",
    "write_reply",
]

PATH = re.compile("/v1/audio/(transcriptions|translations)")
STREAM_TYPE = "text/event-stream"
_KNOWN = frozenset({"model", "language", "prompt", "response_format", "temperature", "timestamp_granularities[]"}) | {
    *("include[]", "stream", "chunking_strategy")
}
_FORMS = {True: frozenset({"json", "diarized_json"}), False: frozenset({"json", "verbose_json"})}


def glance(path: str, body: bytes) -> Glance | None:
    """Return None: every request is read."""
    return None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) that names the field, as OpenAI does."""
    form = read_form(body)
    fields = dict(form.fields)
    if unknown := sorted(fields.keys() - _KNOWN):
        raise SandboxRefusal(400, f"Unknown parameter: '{unknown[0]}'", param=unknown[0])
    model, wanted = fields.get("model", ""), fields.get("response_format", "json")
    counts_tokens = model.partition(":")[0].endswith("-tokens")
    if wanted not in _FORMS[counts_tokens]:
        raise SandboxRefusal(400, f"response_format '{wanted}' is not compatible with model", param="response_format")
    prompt = (Turn("system", fields["prompt"]),) if "prompt" in fields else ()
    return Conversation(
        model=model,
        turns=(*prompt, Turn("user", heard_in(form.data))),
        streamed=fields.get("stream") == "true",
        heard=seconds_of(form.data),
        form=f"{wanted}{'+words' if ('timestamp_granularities[]', 'word') in form.fields else ''}",
    )


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body."""
    text, words = answer.choices[0].text or "", timed_words(answer)
    reply: dict[str, Any] = {"text": text}
    if answer.form.startswith("verbose_json"):
        reply |= {"task": "transcribe", "language": "english", "duration": answer.heard}
        reply["segments"] = [{"id": place, "seek": 0, **one} for place, one in enumerate(_sentences(words))]
        if answer.form.endswith("+words"):
            reply["words"] = words
    elif answer.form.startswith("diarized_json"):
        reply |= {"task": "transcribe", "duration": answer.heard, "segments": _diarized(words)}
    return msgspec.json.encode(reply | _usage(answer))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events of a stream."""
    text = answer.choices[0].text or ""
    events: list[dict[str, Any]] = [
        {"type": "transcript.text.delta", "delta": piece} for piece in scenario.pieces_of(text)
    ]
    if answer.form.startswith("diarized_json"):
        events += _diarized(timed_words(answer))
    events.append({"type": "transcript.text.done", "text": text, **_usage(answer)})
    return [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]


def timed_words(answer: SandboxAnswer) -> list[dict[str, Any]]:
    """Return the words of a transcript, each as long as the others."""
    words = (answer.choices[0].text or "").split()
    each = (answer.heard or 0) / max(len(words), 1)
    return [
        {"word": word, "start": round(place * each, 3), "end": round((place + 1) * each, 3)}
        for place, word in enumerate(words)
    ]


def _sentences(words: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sentences: list[list[dict[str, Any]]] = [[]]
    for word in words:
        sentences[-1].append(word)
        if word["word"].endswith("."):
            sentences.append([])
    return [
        {"start": one[0]["start"], "end": one[-1]["end"], "text": " " + " ".join(word["word"] for word in one)}
        for one in sentences
        if one
    ]


def _diarized(words: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sentences, of two speakers in turn."""
    return [
        {"type": "transcript.text.segment", "id": f"seg_{place}", "speaker": "AB"[place % 2], **one}
        for place, one in enumerate(_sentences(words))
    ]


def _usage(answer: SandboxAnswer) -> dict[str, Any]:
    usage = answer.usage
    if usage is None:
        return {}
    if not answer.model.partition(":")[0].endswith("-tokens"):
        return {"usage": {"type": "duration", "seconds": answer.heard}}
    parts = {"audio_tokens": usage.attached, "text_tokens": usage.prompt - usage.attached}
    counts = {"input_tokens": usage.prompt, "output_tokens": usage.completion}
    total = usage.prompt + usage.completion
    return {"usage": {"type": "tokens", **counts, "total_tokens": total, "input_token_details": parts}}
