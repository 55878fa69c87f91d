"""Writes replies, streams and errors as Bedrock does.

A stream is AWS's binary frames: a length, headers, a payload, and checksums of the lengths and of the whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import msgspec

from apps.sandbox.conversation import SandboxAnswer, SandboxChoice, SandboxUsage
from apps.sandbox.formats.bedrock_converse.reading import SIGNATURE
from apps.sandbox.refusal import SandboxRefusal
from apps.sandbox.scenario import Scenario

_TEXT = 7


def frame(kind: str, payload: dict[str, Any], *, exception: bool = False) -> bytes:
    """Return the frame of an event, or of an exception."""
    word = "exception" if exception else "event"
    names = {f":{word}-type": kind, ":content-type": "application/json", ":message-type": word}
    headers = b"".join(_header(name, value) for name, value in names.items())
    body = msgspec.json.encode(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return whole + struct.pack(">I", crc32(whole))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([_TEXT]) + len(value).to_bytes(2) + value.encode()


ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_PADDING = "abcdefghij"
_METRICS = {"latencyMs": 1}
_EXTRA = {"xSandbox": {"note": "an unknown field"}}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "content_filtered"}
_EXCEPTIONS = {
    400: "validationException",
    424: "modelStreamErrorException",
    429: "throttlingException",
    500: "internalServerException",
    503: "serviceUnavailableException",
}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    reply = {
        "metrics": _METRICS,
        "output": {"message": {"role": "assistant", "content": list(_blocks(choice))}},
        "stopReason": _STOPS[choice.finish],
        "usage": _usage(answer.usage),
    }
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the frames, from `messageStart` to `metadata`."""
    choice = answer.choices[0]
    extra = _EXTRA if scenario.extra else {}
    events = [frame("messageStart", {"p": _PADDING, "role": "assistant"} | extra)]
    for index, block in enumerate(_blocks(choice)):
        events += _streamed(index, block, scenario)
    events.append(frame("messageStop", {"p": _PADDING, "stopReason": _STOPS[choice.finish]}))
    return [*events, frame("metadata", {"metrics": _METRICS, "p": _PADDING, "usage": _usage(answer.usage)})]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    return msgspec.json.encode({"modelSummaries": [{"modelId": name, "modelName": name} for name in names]})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Bedrock's error body."""
    return msgspec.json.encode({"message": refusal.message})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error as an exception's frame."""
    name = _EXCEPTIONS.get(refusal.status, "internalServerException")
    return frame(name, {"message": refusal.message}, exception=True)


def _blocks(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"reasoningContent": {"reasoningText": {"text": choice.reasoning, "signature": SIGNATURE}}}
    if choice.text:
        yield {"text": choice.text}
    for call in choice.calls:
        arguments = msgspec.Raw(call.arguments.encode())
        yield {"toolUse": {"input": arguments, "name": call.name, "toolUseId": call.id}}


def _streamed(index: int, block: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    if use := block.get("toolUse"):
        start = {"toolUse": {"name": use["name"], "toolUseId": use["toolUseId"]}}
        yield frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
        pieces = scenario.pieces_of(bytes(use["input"]).decode(), usual=ARGUMENT_DELTA)
        deltas: list[dict[str, Any]] = [{"toolUse": {"input": piece}} for piece in pieces]
    elif thought := block.get("reasoningContent"):
        deltas = [{"reasoningContent": {"text": text}} for text in scenario.pieces_of(thought["reasoningText"]["text"])]
        deltas.append({"reasoningContent": {"signature": SIGNATURE}})
    else:
        deltas = [{"text": piece} for piece in scenario.pieces_of(block["text"])]
    for delta in deltas:
        yield frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": _PADDING})
    yield frame("contentBlockStop", {"contentBlockIndex": index})


def _usage(usage: SandboxUsage | None) -> dict[str, Any]:
    if usage is None:
        return {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    counts: dict[str, Any] = {
        "inputTokens": usage.prompt - usage.cached - usage.cache_write,
        "outputTokens": usage.completion,
        "totalTokens": usage.prompt + usage.completion,
    }
    if usage.cached or usage.cache_write:
        counts |= {"cacheReadInputTokens": usage.cached, "cacheWriteInputTokens": usage.cache_write}
        counts["cacheDetails"] = [{"inputTokens": usage.cache_write, "ttl": "5m"}]
    return counts
