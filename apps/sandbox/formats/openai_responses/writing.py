"""Writes responses and their events as OpenAI does. Everything in them depends on the request alone, so that equal
requests get equal bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxToolCall, SandboxUsage
from apps.sandbox.formats.openai_chat.writing import ARGUMENT_DELTA, CREATED
from apps.sandbox.formats.openai_responses.signatures import signature_of
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

Record = dict[str, Any]

_EXTRA = {"x_sandbox": {"note": "an unknown field"}}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_CODES = {429: "rate_limit_exceeded"}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    return msgspec.json.encode(_response(answer, scenario, list(_items(answer))))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the events of a stream, numbered; the last one has the whole response."""
    begun = _response(answer, scenario, None)
    events: list[Record] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    items = list(_items(answer))
    for index, item in enumerate(items):
        events += _item_events(index, item, scenario)
    whole = _response(answer, scenario, items)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [_event({**event, "sequence_number": number}) for number, event in enumerate(events)]


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the event with which a stream fails."""
    code = refusal.code or _CODES.get(refusal.status, "server_error")
    return _event({"type": "error", "code": code, "message": refusal.message, "param": None, "sequence_number": 0})


def _event(event: Record) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _response(answer: SandboxAnswer, scenario: Scenario, items: list[Record] | None) -> Record:
    """Return the response around items; None where it has only begun."""
    finish = answer.choices[0].finish
    reason = _INCOMPLETE.get(finish)
    status = "incomplete" if reason else "completed"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress" if items is None else status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason and items is not None else None,
        "model": answer.model,
        "output": items or [],
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(answer.usage) if answer.usage and items is not None else None,
        **(_EXTRA if scenario.extra else {}),
    }


def _items(answer: SandboxAnswer) -> Iterator[Record]:
    choice = answer.choices[0]
    if choice.reasoning:
        yield _thinking(answer.id, choice)
    if choice.text is not None:
        yield {
            "type": "message",
            "id": f"msg_{answer.id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}],
        }
    for number, call in enumerate(choice.calls):
        yield _call(f"fc_{answer.id}_{number}", call)


def _thinking(name: str, choice: SandboxChoice) -> Record:
    item_id = f"rs_{name}"
    summary = [{"type": "summary_text", "text": choice.reasoning}]
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": signature_of(item_id)}


def _call(item_id: str, call: SandboxToolCall) -> Record:
    kind, field = ("custom_tool_call", "input") if call.custom else ("function_call", "arguments")
    wire = {"type": kind, "id": item_id, "call_id": call.id, "name": call.name}
    if call.namespace is not None:
        wire["namespace"] = call.namespace
    return {**wire, field: call.arguments, "status": "completed"}


def _item_events(index: int, item: Record, scenario: Scenario) -> Iterator[Record]:
    """Yield the events of an item: its beginning, its pieces, and the whole of it."""
    at = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    empty: dict[str, Record] = {"reasoning": {"summary": []}, "message": {"content": []}}
    hollow = {**item, **empty.get(kind, {"input" if kind == "custom_tool_call" else "arguments": ""})}
    yield {"type": "response.output_item.added", "output_index": index, "item": hollow}
    if kind == "reasoning":
        at["summary_index"] = 0
        for piece in scenario.pieces_of(item["summary"][0]["text"]):
            yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    elif kind == "message":
        at["content_index"] = 0
        for piece in scenario.pieces_of(item["content"][0]["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": item["content"][0]["text"], "logprobs": []}
    else:
        custom = kind == "custom_tool_call"
        word, field = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        for piece in scenario.pieces_of(item[field], usual=ARGUMENT_DELTA):
            yield {"type": f"response.{word}.delta", **at, "delta": piece}
        yield {"type": f"response.{word}.done", **at, field: item[field]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _usage(usage: SandboxUsage) -> Record:
    read: Record = {"cached_tokens": usage.cached}
    if usage.cache_write:
        read["cache_write_tokens"] = usage.cache_write
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": read,
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
