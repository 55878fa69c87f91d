"""Writes replies, streams and errors as Cohere does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxToolCall, SandboxUsage
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

PREAMBLE = 500
"""Tokens of Cohere's own instructions, which precede every prompt and are not billed."""

_FINISHES = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "content_filter": "ERROR_TOXIC"}
_PLAN = "I will use a tool."
_EXTRA = {"x_sandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    message: dict[str, Any] = {"role": "assistant"}
    if choice.calls:
        message |= {"tool_plan": _PLAN, "tool_calls": [_call(call, call.arguments) for call in choice.calls]}
    if content := list(_content(choice)):
        message["content"] = content
    reply: dict[str, Any] = {"id": answer.id, "finish_reason": _FINISHES[choice.finish], "message": message}
    if answer.usage:
        reply["usage"] = _usage(answer.usage)
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events, from `message-start` to `message-end`, and `[DONE]`."""
    choice = answer.choices[0]
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    events = [_event("message-start", id=answer.id, delta={"message": empty}, **(_EXTRA if scenario.extra else {}))]
    for index, part in enumerate(_content(choice)):
        events += _streamed(index, part, scenario)
    if choice.calls:
        events += [_delta("tool-plan-delta", None, {"tool_plan": piece}) for piece in scenario.pieces_of(_PLAN)]
    for index, call in enumerate(choice.calls):
        events.append(_delta("tool-call-start", index, {"tool_calls": _call(call, "")}))
        events += [
            _delta("tool-call-delta", index, {"tool_calls": {"function": {"arguments": piece}}})
            for piece in scenario.pieces_of(call.arguments, usual=ARGUMENT_DELTA)
        ]
        events.append(_event("tool-call-end", index=index))
    end: dict[str, Any] = {"finish_reason": _FINISHES[choice.finish]}
    if answer.usage:
        end["usage"] = _usage(answer.usage)
    return [*events, _event("message-end", id=answer.id, delta=end), b"data: [DONE]\n\n"]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    return msgspec.json.encode({"models": [{"name": name, "endpoints": ["chat"]} for name in names]})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Cohere's error body."""
    return msgspec.json.encode({"id": "sandbox", "message": refusal.message})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return an error in the middle of a stream: its end says that it went wrong."""
    return _event("message-end", id="sandbox", delta={"finish_reason": "ERROR", "error": refusal.message})


def _event(kind: str, **more: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


def _delta(kind: str, index: int | None, message: dict[str, Any]) -> bytes:
    place = {} if index is None else {"index": index}
    return _event(kind, **place, delta={"message": message})


def _content(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"type": "thinking", "thinking": choice.reasoning}
    if choice.text is not None:
        yield {"type": "text", "text": choice.text}


def _streamed(index: int, part: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    kind = part["type"]
    yield _delta("content-start", index, {"content": {"type": kind, kind: ""}})
    for piece in scenario.pieces_of(part[kind]):
        yield _delta("content-delta", index, {"content": {kind: piece}})
    yield _event("content-end", index=index)


def _call(call: SandboxToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    """Return both counts: the billed tokens, and all tokens read and written."""
    billed = {"input_tokens": usage.prompt, "output_tokens": usage.completion - usage.reasoning}
    counts = {"input_tokens": usage.prompt + PREAMBLE, "output_tokens": usage.completion}
    return {"billed_units": billed, "tokens": counts, "cached_tokens": usage.cached + PREAMBLE if usage.cached else 0}
