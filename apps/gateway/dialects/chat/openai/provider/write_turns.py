"""OpenAI Chat Completions, provider side: orders turns as stricter providers take them: who may speak after a tool, a
prefilled answer, thinking as a content part.

Knows facts, and messages as the wire has them. Must never know a provider by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.chat.openai.provider.flavor import Flavor

Record = dict[str, Any]

_GO_ON = {"role": "assistant", "content": "OK"}


def adapt_turns(messages: list[Record], flavor: Flavor) -> list[Record]:
    """Return messages as the provider takes them."""
    if flavor.media_parts == "flat":
        messages = [_with_flat_media(message) for message in messages]
    if not flavor.speaks_after_tools:
        messages = _with_answers_to_tools(messages)
    if flavor.prefill_field is not None and messages and messages[-1]["role"] == "assistant":
        messages[-1][flavor.prefill_field] = True
    return messages


def thinking_part(text: str, signature: str | None) -> Record:
    """Return thinking as a part of the content, signed where it came signed in this very form."""
    part: Record = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
    return part if signature is None else {**part, "signature": signature}


def _with_answers_to_tools(messages: list[Record]) -> list[Record]:
    """Return messages in which the model says a word between a tool's result and what a user or an operator says."""
    turns: list[Record] = []
    for message in messages:
        if turns and turns[-1]["role"] == "tool" and message["role"] not in ("tool", "assistant"):
            turns.append(dict(_GO_ON))
        turns.append(message)
    return turns


def _with_flat_media(message: Record) -> Record:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_flat(part) for part in content]}


def _flat(part: Record) -> Record:
    kind = part.get("type")
    if kind == "input_audio" and isinstance(part[kind], dict):
        return {"type": kind, "input_audio": part[kind]["data"]}
    if kind == "refusal":
        return {"type": "text", "text": part["refusal"]}
    if kind != "file":
        return part
    inner = part["file"]
    if "file_data" not in inner:
        return {"type": "file", "file_id": inner["file_id"]}
    flat = {"type": "document_url", "document_url": inner["file_data"]}
    return {**flat, "document_name": inner["filename"]} if "filename" in inner else flat
