"""Writes replies, streams and errors as OpenAI does. `created` is a constant, so equal requests get equal bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxToolCall, SandboxUsage
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

CREATED = 1_767_225_600
"""2026-01-01T00:00:00Z, in seconds."""
ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_FINGERPRINT = "fp_sandbox"
_EXTRA = {"x_sandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choices = [
        {"index": index, "message": _message(choice, scenario), "logprobs": None, "finish_reason": choice.finish}
        for index, choice in enumerate(answer.choices)
    ]
    reply = _envelope(answer, "chat.completion", choices)
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the chunks, the usage chunk if it is wanted, and `[DONE]`."""
    usage = answer.usage and _usage(answer.usage)
    own_chunk = wants_usage and scenario.usage_at == "own"
    common: dict[str, Any] = ({"usage": None} if own_chunk else {}) | (_EXTRA if scenario.extra else {})

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        chunk = _envelope(answer, "chat.completion.chunk", choices) | common | more
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    events: list[bytes] = []
    for index, choice in enumerate(answer.choices):
        frame: dict[str, Any] = {"index": index, "delta": {}, "logprobs": None, "finish_reason": None}
        events += [event([frame | {"delta": delta}]) for delta in _deltas(choice, scenario)]
        last = frame | {"finish_reason": choice.finish}
        with_usage = usage and scenario.usage_at == "finish" and index == len(answer.choices) - 1
        events.append(event([last], usage=usage) if with_usage else event([last]))
    if usage and own_chunk:
        events.append(event([], usage=usage))
    return [*events, b"data: [DONE]\n\n"]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    models = [{"id": name, "object": "model", "created": CREATED, "owned_by": "sandbox"} for name in names]
    return msgspec.json.encode({"object": "list", "data": models})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return OpenAI's error body."""
    kind, code = "invalid_request_error", refusal.code
    if refusal.status == 429:
        kind, code = "requests", code or "rate_limit_exceeded"
    elif refusal.status >= 500:
        kind = "server_error"
    error = {"message": refusal.message, "type": kind, "param": refusal.param, "code": code}
    return msgspec.json.encode({"error": error})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"data: " + write_error(refusal) + b"\n\n"


def _envelope(answer: SandboxAnswer, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "system_fingerprint": _FINGERPRINT,
        "choices": choices,
    }


def _message(choice: SandboxChoice, scenario: Scenario) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.reasoning:
        said = choice.text and [{"type": "text", "text": choice.text}]
        message |= _thought(choice.reasoning, scenario, said or [])
    if choice.pictures:
        message["images"] = [_image(picture) for picture in choice.pictures]
    if choice.calls:
        message["tool_calls"] = [_written_call(call, call.arguments) for call in choice.calls]
    return message


def _image(picture: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(picture).decode()}"}}


def _written_call(call: SandboxToolCall, arguments: str) -> dict[str, Any]:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _deltas(choice: SandboxChoice, scenario: Scenario) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if choice.calls else "", "refusal": None}
    for piece in scenario.pieces_of(choice.reasoning or ""):
        yield _thought(piece, scenario, [])
    for piece in scenario.pieces_of(choice.text or ""):
        yield {"content": piece}
    for picture in choice.pictures:
        yield {"images": [_image(picture)]}
    for index, call in enumerate(choice.calls):
        yield {"tool_calls": [{"index": index} | _written_call(call, "")]}
        for piece in scenario.pieces_of(call.arguments, usual=ARGUMENT_DELTA):
            delta = {"custom": {"input": piece}} if call.custom else {"function": {"arguments": piece}}
            yield {"tool_calls": [{"index": index} | delta]}


def _thought(text: str, scenario: Scenario, said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return thinking in a field of its own, or as a part of the content before the text."""
    if scenario.reasoning_field != "content":
        return {scenario.reasoning_field: text}
    return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}, *said]}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    prompt = {"cached_tokens": usage.cached, "audio_tokens": 0}
    if usage.cache_write:
        prompt["cache_write_tokens"] = usage.cache_write
    written = {"reasoning_tokens": usage.reasoning, "audio_tokens": 0}
    if usage.painted:
        written["image_tokens"] = usage.painted
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": written,
    }
