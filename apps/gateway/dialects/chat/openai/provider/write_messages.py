"""OpenAI Chat Completions, provider side: writes `messages` in a provider's capabilities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import count
from typing import Any

import msgspec

from apps.gateway.canonical.chat import (
    Audio,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Piece,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.text_documents import text_of_document
from apps.gateway.dialects.adapting.thinking import (
    SIGNATURE_FIELD,
    split_signature,
    state_signature,
    stated_signature,
)
from apps.gateway.dialects.chat.openai.wire import NAME, PARKED, PART_FORMAT, CallIds, Capabilities, cache_control
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

_ANSWER_BETWEEN = {"role": "assistant", "content": "OK"}


def adapt_turns(messages: list[Record], capabilities: Capabilities) -> list[Record]:
    """Return messages as the provider takes them."""
    if capabilities.media_parts == "flat":
        messages = [_with_flat_media(message) for message in messages]
    if not capabilities.speaks_after_tools:
        messages = _with_answers_to_tools(messages)
    if capabilities.prefill_field is not None and messages and messages[-1]["role"] == "assistant":
        messages[-1][capabilities.prefill_field] = True
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
            turns.append(dict(_ANSWER_BETWEEN))
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


# The most that OpenAI itself took for long; others took over its limit.
MAX_ID_LENGTH = 40
_NINE = 9
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NINE_ALPHANUMERICS = re.compile(r"[0-9A-Za-z]{9}")


def adapt_call_ids(messages: Iterable[Message], kind: CallIds) -> dict[str, str]:
    """Return what each id that has to change becomes; ids that fit are kept, and are not in it."""
    seen = dict.fromkeys(
        part.id if isinstance(part, ToolCall) else part.call_id
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall | ToolResult)
    )
    fits, make = _KINDS[kind]
    fitting = {call_id for call_id in seen if fits(call_id)}
    taken, changed = set(fitting), dict[str, str]()
    for call_id in seen:
        if call_id not in fitting:
            bare = split_signature(call_id)[0]
            new = bare if fits(bare) and bare not in taken else _unused(call_id, make, taken)
            taken.add(new)
            changed[call_id] = new
    return changed


def _is_signed(call_id: str) -> bool:
    return split_signature(call_id)[1] is not None


def _unused(call_id: str, make: Callable[[bytes], str], taken: set[str]) -> str:
    """Return an unused id, made of the digest of another one."""
    for attempt in count():
        new = make(sha256(f"{attempt}:{call_id}".encode("utf-8", "replace")).digest())
        if new not in taken:
            return new
    raise AssertionError


def _is_short(call_id: str) -> bool:
    return 0 < len(call_id) <= MAX_ID_LENGTH and not _is_signed(call_id)


def _short(digest: bytes) -> str:
    return f"call_{digest.hex()[:32]}"


def _is_nine(call_id: str) -> bool:
    return _NINE_ALPHANUMERICS.fullmatch(call_id) is not None


def _nine(digest: bytes) -> str:
    number = int.from_bytes(digest)
    letters = []
    for _ in range(_NINE):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _is_bare(call_id: str) -> bool:
    return not _is_signed(call_id)


_KINDS: dict[CallIds, tuple[Callable[[str], bool], Callable[[bytes], str]]] = {
    "any": (_is_bare, _short),
    "short": (_is_short, _short),
    "nine_alphanumerics": (_is_nine, _nine),
}


_ERROR = {"type": "text", "text": "Error:"}
_BLANK = " "
_NO_REASONING = (None, msgspec.Raw(b"null"))


def write_messages(messages: Iterable[Message], capabilities: Capabilities) -> list[Record]:
    """Return all messages. Content that only a user may send (images, files) follows the tool results of its turn."""
    if capabilities.same_dialect:
        return adapt_turns([write_message(message, capabilities) for message in messages], capabilities)
    return adapt_turns(list(_with_images_apart(messages, capabilities)), capabilities)


def _with_images_apart(messages: Iterable[Message], capabilities: Capabilities) -> Iterator[Record]:
    """Yield messages whose tool answers are text only, as the format has it."""
    shown: list[Record] = []
    for message in messages:
        if message.role != "tool" and shown:
            yield {"role": "user", "content": shown}
            shown = []
        wire = write_message(message, capabilities)
        content = wire.get("content")
        if message.role == "tool" and isinstance(content, list):
            shown += [part for part in content if part["type"] != "text"]
            wire["content"] = [part for part in content if part["type"] == "text"] or ""
        yield wire
    if shown:
        yield {"role": "user", "content": shown}


def write_message(message: Message, capabilities: Capabilities) -> Record:
    """Return one message."""
    wire: Record = {"role": message.role}
    if message.role == "developer" and not capabilities.developer_role:
        wire["role"] = "system"
    if message.role == "assistant":
        _write_assistant(message, capabilities, wire)
    elif message.role == "tool":
        _write_tool(message, capabilities, wire)
    else:
        wire["content"] = _content(message.parts, capabilities)
    if message.name is not None:
        wire["name"] = message.name
    if message.extra and capabilities.same_dialect:
        wire.update({name: value for name, value in message.extra.items() if name != PARKED})
    return wire


def _write_assistant(message: Message, capabilities: Capabilities, wire: Record) -> None:
    content: list[Part] = [part for part in message.parts if not isinstance(part, Reasoning | ToolCall | Image)]
    calls = [_call(part, capabilities) for part in message.parts if isinstance(part, ToolCall)]
    wire["content"] = _content(content, capabilities) if content or not calls else None
    if thoughts := [part for part in message.parts if isinstance(part, Reasoning)]:
        _write_reasoning(thoughts, capabilities, wire)
    if calls:
        wire["tool_calls"] = calls
    fill_reasoning(wire, capabilities)
    if "images" in capabilities.takes and (
        images := [_part(part, capabilities) for part in message.parts if isinstance(part, Image)]
    ):
        wire["images"] = images


def _write_reasoning(thoughts: list[Reasoning], capabilities: Capabilities, wire: Record) -> None:
    """Bring thinking back block by block where the provider takes that and anything is more than text, else as text."""
    signed = any(block.format or block.signature or block.data or block.id or block.summary for block in thoughts)
    if signed and "reasoning_details" in capabilities.takes:
        wire["reasoning_details"] = [write_detail(block, number) for number, block in enumerate(thoughts)]
    if capabilities.reasoning_field == "any":
        if text := "".join(block.text for block in thoughts):
            wire["reasoning_content"] = text
    elif "reasoning_details" in wire:
        return
    elif capabilities.reasoning_field == "content":
        _write_thinking_parts(thoughts, wire)
    elif capabilities.reasoning_field is not None:
        # Also when empty: some insist on the field beside calls.
        wire[capabilities.reasoning_field] = "".join(block.text for block in thoughts)


def fill_reasoning(wire: Record, capabilities: Capabilities) -> None:
    """Add a blank to an assistant's message without reasoning where the provider refuses that.

    An empty text of the client's stays: recorded requests have it. Values may be the client's bytes.
    """
    required, field = capabilities.reasoning_required, capabilities.reasoning_field
    if required is None or field is None or (required == "calls" and not wire.get("tool_calls")):
        return
    if wire.get(field) in _NO_REASONING:
        wire[field] = _BLANK


def _write_thinking_parts(thoughts: list[Reasoning], wire: Record) -> None:
    """Put thinking before the text, with a signature where it came in this very form."""
    parts = [
        thinking_part(block.text, block.signature if block.format == PART_FORMAT else None)
        for block in thoughts
        if block.text
    ]
    content = wire["content"]
    if parts and isinstance(content, list):
        wire["content"] = [*parts, *content]
    elif parts:
        wire["content"] = [*parts, {"type": "text", "text": content}] if content else parts


def write_detail(block: Any, index: int) -> Record:
    """Return a block of thinking (a part of a message, or an event) as an entry of `reasoning_details`."""
    wire: Record = {}
    if block.data is not None:
        wire |= {"type": "reasoning.encrypted", "data": block.data}
    elif block.summary:
        wire |= {"type": "reasoning.summary", "summary": block.text}
    else:
        wire["type"] = "reasoning.text"
        if block.text or block.signature is None:
            wire["text"] = block.text
    for name in ("signature", "id", "format"):
        if (value := getattr(block, name)) is not None:
            wire[name] = value
    wire["index"] = index
    return wire


def _write_tool(message: Message, capabilities: Capabilities, wire: Record) -> None:
    for result in message.parts:
        if isinstance(result, ToolResult):
            wire["tool_call_id"] = result.call_id
            content = _content(result.parts, capabilities)
            if result.is_error:
                content = f"Error: {content}" if isinstance(content, str) else [_ERROR, *content]
            wire["content"] = content
            if result.name is not None:
                wire["name"] = result.name


def _call(call: ToolCall, capabilities: Capabilities) -> Record:
    extra = call.extra or {}
    if extra.get("type") == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    if not capabilities.same_dialect:
        signature = stated_signature(extra) if SIGNATURE_FIELD in capabilities.takes else None
        extra = {} if signature is None else state_signature(signature)
    return {"id": call.id, "type": "function", "function": function, **extra}


def _content(parts: list[Part], capabilities: Capabilities) -> str | list[Record]:
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(only := parts[0], Text):
        wire = _part(only, capabilities)
        return only.text if len(wire) == 2 else [wire]
    return [_part(part, capabilities) for part in parts]


def _part(part: Part, capabilities: Capabilities) -> Record:
    """Return a part of a message's content. Raises InvalidRequest for what the format has no words for."""
    extra = dict(part.extra) if part.extra and capabilities.same_dialect else {}
    match part:
        case Text():
            wire: Record = {"type": "text", "text": part.text}
        case Image():
            wire = _nested("image_url", extra, url=part.url, detail=part.detail)
        case Audio():
            wire = _nested("input_audio", extra, data=part.data, format=part.format)
        case File() if not capabilities.same_dialect and (text := text_of_document(part)) is not None:
            wire = {"type": "text", "text": text}
        case File():
            data = part.url if part.data is None else _data_url(part.data, part.media_type)
            wire = _nested("file", extra, file_data=data, file_id=part.file_id, filename=part.filename)
        case Refusal():
            wire = {"type": "refusal", "refusal": part.text}
        case Opaque(dialect=dialect, data=data) if dialect == NAME:
            return dict(data)
        case _:
            raise InvalidRequest(
                "A message holds content that this model's provider has no form for",
                code="unsupported_feature",
                param="messages",
            )
    wire |= extra
    return with_cache_mark(wire, part, capabilities)


def with_cache_mark(wire: Record, piece: Piece, capabilities: Capabilities) -> Record:
    """Add a part's or a tool's cache mark where the provider takes those."""
    if piece.cache is not None and "cache_control" in capabilities.takes:
        wire["cache_control"] = cache_control(piece.cache)
    return wire


def _nested(kind: str, extra: Record, **inner: Any) -> Record:
    """Return a part whose content is an object under its kind; takes the inner fields that are unknown from `extra`."""
    stated = {name: value for name, value in inner.items() if value is not None}
    return {"type": kind, kind: {**stated, **extra.pop(kind, {})}}


def _data_url(data: str, media_type: str | None) -> str:
    return data if media_type is None or data.startswith("data:") else f"data:{media_type};base64,{data}"
