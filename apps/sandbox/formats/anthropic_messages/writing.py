"""Writes replies, streams and errors as Anthropic does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxUsage
from apps.sandbox.formats.anthropic_messages.signatures import SIGNATURE
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_EXTRA = {"x_sandbox": {"note": "an unknown field"}}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    message = _message(answer, scenario) | {
        "content": list(_blocks(choice)),
        "stop_reason": _STOPS[choice.finish],
        "usage": _usage(answer.usage),
    }
    return msgspec.json.encode(message)


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events, from `message_start` to `message_stop`."""
    choice = answer.choices[0]
    # As at Anthropic: the first event counts an output token or a few, and the last all of them.
    begun = min(answer.usage.completion, 1) if answer.usage is not None else 0
    start = _message(answer, scenario) | {"usage": _usage(answer.usage) | {"output_tokens": begun}}
    events = [_event("message_start", message=start), _event("ping")]
    for index, block in enumerate(_blocks(choice)):
        events += _streamed(index, block, scenario)
    delta = {"stop_reason": _STOPS[choice.finish], "stop_sequence": None}
    return [*events, _event("message_delta", delta=delta, usage=_usage(answer.usage)), _event("message_stop")]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"} for name in names
    ]
    return msgspec.json.encode({"data": models, "has_more": False})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Anthropic's error body."""
    kind = _ERRORS.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": refusal.message}})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"event: error\ndata: " + write_error(refusal) + b"\n\n"


def _event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def _message(answer: SandboxAnswer, scenario: Scenario) -> dict[str, Any]:
    message = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model, "content": []}
    return message | {"stop_reason": None, "stop_sequence": None} | (_EXTRA if scenario.extra else {})


def _blocks(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"type": "thinking", "thinking": choice.reasoning, "signature": SIGNATURE}
    if choice.text:
        yield {"type": "text", "text": choice.text}
    for call in choice.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": msgspec.Raw(call.arguments.encode())}


def _streamed(index: int, block: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    match block["type"]:
        case "thinking":
            start = block | {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": piece} for piece in scenario.pieces_of(block["thinking"])
            ] + [{"type": "signature_delta", "signature": block["signature"]}]
        case "text":
            start = block | {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in scenario.pieces_of(block["text"])]
        case _:
            start = block | {"input": {}}
            pieces = scenario.pieces_of(bytes(block["input"]).decode(), usual=ARGUMENT_DELTA)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
    yield _event("content_block_start", index=index, content_block=start)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _usage(usage: SandboxUsage | None) -> dict[str, Any]:
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    return {
        "input_tokens": usage.prompt - usage.cached - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }
