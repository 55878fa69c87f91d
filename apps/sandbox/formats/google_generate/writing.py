"""Writes replies, streams and errors as Google does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxUsage
from apps.sandbox.formats.google_generate.signatures import signature_of
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

_FINISHES = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_EXTRA = {"xSandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    candidates = [
        _candidate(index, _whole(choice), _FINISHES[choice.finish]) for index, choice in enumerate(answer.choices)
    ]
    return msgspec.json.encode(_envelope(answer, candidates, scenario))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the chunks; the last of each candidate says why it ended. Counts are on every chunk: so far."""
    candidates: list[dict[str, Any]] = []
    for index, choice in enumerate(answer.choices):
        parts = _blobs("audio/L16;codec=pcm;rate=24000", answer.sound) or _parts(choice, scenario)
        candidates += [_candidate(index, [part]) for part in parts]
        candidates.append(_candidate(index, [{"text": ""}], _FINISHES[choice.finish]))
    events: list[bytes] = []
    for place, candidate in enumerate(candidates, 1):
        so_far = replace(answer, usage=_so_far(answer.usage, place, len(candidates)))
        events.append(b"data: " + msgspec.json.encode(_envelope(so_far, [candidate], scenario)) + b"\r\n\r\n")
    return events


def _so_far(usage: SandboxUsage | None, place: int, chunks: int) -> SandboxUsage | None:
    """Return what has been counted with one of the chunks; all of it with the last that says anything."""
    if usage is None or place >= chunks - 1:
        return usage
    written = usage.completion * place // (chunks - 1)
    return replace(usage, completion=written, reasoning=min(usage.reasoning, written), painted=0)


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    methods = ["generateContent", "countTokens"]
    models = [{"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods} for name in names]
    return msgspec.json.encode({"models": models})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Google's error body."""
    error: dict[str, Any] = {
        "code": refusal.status,
        "message": refusal.message,
        "status": _STATUSES.get(refusal.status, "UNKNOWN"),
    }
    if refusal.code:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.code}]
    return msgspec.json.encode({"error": error})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"data: " + write_error(refusal) + b"\r\n\r\n"


def _envelope(answer: SandboxAnswer, candidates: list[dict[str, Any]], scenario: Scenario) -> dict[str, Any]:
    envelope: dict[str, Any] = {"candidates": candidates}
    if answer.usage:
        envelope["usageMetadata"] = _usage(answer.usage)
    return envelope | {"modelVersion": answer.model, "responseId": answer.id} | (_EXTRA if scenario.extra else {})


def _candidate(index: int, parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    return candidate | ({"finishReason": finish} if finish else {}) | {"index": index}


def _whole(choice: SandboxChoice) -> list[dict[str, Any]]:
    thought = [{"text": choice.reasoning, "thought": True}] if choice.reasoning else []
    text = [{"text": choice.text}] if choice.text is not None else []
    return [*thought, *text, *_blobs("image/png", choice.pictures), *_calls(choice)]


def _parts(choice: SandboxChoice, scenario: Scenario) -> Iterator[dict[str, Any]]:
    for piece in scenario.pieces_of(choice.reasoning or ""):
        yield {"text": piece, "thought": True}
    for piece in scenario.pieces_of(choice.text or ""):
        yield {"text": piece}
    yield from _blobs("image/png", choice.pictures)
    yield from _calls(choice)


def _blobs(media_type: str, blobs: Iterable[bytes]) -> list[dict[str, Any]]:
    return [{"inlineData": {"mimeType": media_type, "data": b64encode(blob).decode()}} for blob in blobs]


def _calls(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    """Yield the calls, whole; the first of them is signed."""
    for place, call in enumerate(choice.calls):
        arguments = msgspec.json.decode(call.arguments)
        part: dict[str, Any] = {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}
        yield part if place else {**part, "thoughtSignature": signature_of(call.id)}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion - usage.reasoning,
        "totalTokenCount": usage.prompt + usage.completion,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt}],
    }
    if usage.painted:
        words = counts["candidatesTokenCount"] - usage.painted
        details = [{"modality": "TEXT", "tokenCount": words}, {"modality": "IMAGE", "tokenCount": usage.painted}]
        counts["candidatesTokensDetails"] = details
    rest = {"cachedContentTokenCount": usage.cached, "thoughtsTokenCount": usage.reasoning}
    return counts | {name: count for name, count in rest.items() if count}
