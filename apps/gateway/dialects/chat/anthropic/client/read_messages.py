"""Anthropic Messages, client side: reads `messages` and `system` into canonical messages.

A user's message with tool results becomes one message for each result, then one for its other content.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from apps.gateway.canonical.chat import (
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.chat.anthropic.wire import NAME, SIGNATURE_FORMAT, encode
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    optional,
    record,
    required,
    string,
)

MAX_BLOCKS = 10_000
# Blocks of Anthropic's own, most of which its answers bring and its clients send back: uses and results of its tools.
_OWN_BLOCK = re.compile(
    r"([a-z0-9_]+_)?tool_(use|result|addition|removal|reference|listing)|[a-z_]*search_result|container_upload"
    r"|compaction|fallback|context_[a-z_]+|connector_text|browser_state"
)
_PLAIN_TEXT = frozenset({"type", "text"})


def read_content(value: Any) -> list[Part]:
    """Read the content of a message: a string, or blocks."""
    if isinstance(value, str):
        return [Text(text=value)]
    if isinstance(value, list):
        return _blocks(value)
    raise Malformed("must be a string or an array of blocks")


def read_system_content(value: Any) -> list[Part]:
    """Read the system prompt: a string, or blocks of text; blocks of other kinds travel as they are."""
    parts = read_content(value)
    for number, part in enumerate(parts):
        if not isinstance(part, Text | Opaque):
            raise Malformed("must be a text block", f"[{number}]")
    return parts


def read_result_content(value: Any) -> list[Part]:
    """Read what a tool answered."""
    parts = read_content(value)
    for number, part in enumerate(parts):
        if not isinstance(part, Text | Image | File | Opaque):
            raise Malformed("must be one of text, image, document, search_result", f"[{number}].type")
    return parts


def cache_mark(wire: Record) -> CacheMark | None:
    """Read a block's or a tool's `cache_control`."""
    mark = optional(wire, "cache_control", record)
    return None if mark is None else CacheMark(ttl=fields.within("cache_control", _ttl, mark))


def _ttl(mark: Record) -> str | None:
    return optional(mark, "ttl", string)


def _block(value: Any) -> Part:
    wire = record(value)
    kind = required(wire, "type", filled_string)
    read = _BLOCKS.get(kind)
    if read is not None:
        return read(wire)
    if not _OWN_BLOCK.fullmatch(kind):
        raise Malformed(f"must be one of {', '.join(_BLOCKS)}, or a block of an answer of Anthropic's", "type")
    return Opaque(dialect=NAME, data=wire)


def _rest(wire: Record, *known: str) -> Record | None:
    return fields.rest_of(wire, frozenset({"type", "cache_control", *known}))


def _text(wire: Record) -> Text:
    text = required(wire, "text", string)
    if wire.keys() == _PLAIN_TEXT:
        return Text(text=text)
    extra = _rest(wire, "text")
    if extra is not None and is_cited_abroad(wire):
        extra = fields.rest_of(extra, frozenset({"citations"}))
    return Text(text=text, cache=cache_mark(wire), extra=extra)


def is_cited_abroad(block: Any) -> bool:
    """Return whether a block has citations that the gateway wrote for another format's: no provider takes them back."""
    citations = block.get("citations") if isinstance(block, dict) else None
    return isinstance(citations, list) and any(
        isinstance(citation, dict) and citation.get("encrypted_index") == "" for citation in citations
    )


def _image(wire: Record) -> Part:
    source = required(wire, "source", record)
    address = fields.within("source", _address, source)
    if address is None:
        return Opaque(dialect=NAME, data=wire)
    return Image(url=address, cache=cache_mark(wire), extra=_rest(wire, "source"))


def _address(source: Record) -> str | None:
    """Return the URL of an image; None for one that only the provider can find."""
    kind = required(source, "type", filled_string)
    if kind == "base64":
        media_type = required(source, "media_type", filled_string)
        return f"data:{media_type};base64,{required(source, 'data', filled_string)}"
    return required(source, "url", filled_string) if kind == "url" else None


def _document(wire: Record) -> Part:
    source = required(wire, "source", record)
    file = fields.within("source", _file, source)
    if file is None:
        return Opaque(dialect=NAME, data=wire)
    file.filename = optional(wire, "title", string)
    file.cache, file.extra = cache_mark(wire), _rest(wire, "source", "title")
    return file


def _file(source: Record) -> File | None:
    kind = required(source, "type", filled_string)
    if kind == "base64":
        media_type = required(source, "media_type", filled_string)
        return File(data=required(source, "data", filled_string), media_type=media_type)
    if kind == "text":
        text = required(source, "data", string)
        return File(data=b64encode(text.encode("utf-8", "replace")).decode(), media_type="text/plain")
    if kind == "url":
        return File(url=required(source, "url", filled_string))
    return File(file_id=required(source, "file_id", filled_string)) if kind == "file" else None


def _thinking(wire: Record) -> Reasoning:
    """Read thinking. A signature of another maker's names its format, as the gateway wrote it into its answer."""
    signature = optional(wire, "signature", string) or None
    return Reasoning(
        text=required(wire, "thinking", string),
        signature=signature,
        id=optional(wire, "id", string),
        format=optional(wire, "format", string) or (SIGNATURE_FORMAT if signature else None),
        extra=_rest(wire, "thinking", "signature", "id", "format"),
    )


def _redacted(wire: Record) -> Reasoning:
    return Reasoning(
        data=required(wire, "data", string),
        id=optional(wire, "id", string),
        format=optional(wire, "format", string) or SIGNATURE_FORMAT,
        extra=_rest(wire, "data", "id", "format"),
    )


def _tool_use(wire: Record) -> ToolCall:
    return ToolCall(
        id=required(wire, "id", filled_string),
        name=required(wire, "name", filled_string),
        arguments=encode(optional(wire, "input", record) or {}).decode(),
        cache=cache_mark(wire),
        extra=_rest(wire, "id", "name", "input"),
    )


def _tool_result(wire: Record) -> ToolResult:
    return ToolResult(
        call_id=required(wire, "tool_use_id", filled_string),
        parts=optional(wire, "content", read_result_content) or [],
        is_error=optional(wire, "is_error", boolean) or False,
        cache=cache_mark(wire),
        extra=_rest(wire, "tool_use_id", "content", "is_error"),
    )


_BLOCKS: dict[str, Callable[[Record], Part]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}
_blocks = list_of(_block, MAX_BLOCKS)


# Bounds far beyond any model's context.
MAX_MESSAGES, MAX_CALLS = 10_000, 1_000
# Roles and fields that are OpenAI's: understood, but no provider of this format takes them.
FOREIGN_ROLES = frozenset({"tool", "function", "developer"})
FOREIGN_FIELDS = frozenset({"tool_calls", "function_call", "tool_call_id", "name"})

_FIELDS = frozenset({"role", "content"}) | FOREIGN_FIELDS


def read_messages(value: Any) -> list[Message]:
    """Read `messages`."""
    found = _messages(value)
    if not found:
        raise Malformed("must hold at least one message")
    messages = [message for turn in found for message in turn]
    _pair_unnamed_calls(messages)
    return messages


def is_foreign(value: Any) -> bool:
    """Return whether messages that could be read hold what providers of this format refuse."""
    return any(
        message["role"] in FOREIGN_ROLES
        or any(message.get(name) is not None for name in FOREIGN_FIELDS)
        or (isinstance(content := message.get("content"), list) and any(map(is_cited_abroad, content)))
        for message in value
    )


def _pair_unnamed_calls(messages: list[Message]) -> None:
    """Give calls without ids (OpenAI's `function_call`) one, and each result the id of the latest call of its name."""
    latest: dict[str | None, str] = {}
    for number, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.id:
                part.id = latest[part.name] = f"call_{number}_{part.name}"
            elif isinstance(part, ToolResult) and not part.call_id:
                part.call_id = latest.get(part.name, f"call_{part.name}")


def _instruction(role: Role) -> Callable[[Record], list[Message]]:
    def read(wire: Record) -> list[Message]:
        parts = required(wire, "content", read_content if role == "user" else read_system_content)
        return [Message(role=role, parts=parts, extra=fields.rest_of(wire, _FIELDS))]

    return read


def _system(wire: Record) -> list[Message]:
    """Read instructions. In mid-conversation they may be but a change of how answers are made."""
    config: Record | None = optional(wire, "output_config", record)
    if config and wire.get("content") is None:
        return [Message(role="system", parts=[], extra=fields.rest_of(wire, _FIELDS))]
    return _instruction("system")(wire)


def _user(wire: Record) -> list[Message]:
    parts = required(wire, "content", read_content)
    extra = fields.rest_of(wire, _FIELDS)
    name = optional(wire, "name", string)
    turns = [Message(role="tool", parts=[part]) for part in parts if isinstance(part, ToolResult)]
    others: list[Part] = [part for part in parts if not isinstance(part, ToolResult)]
    if others:
        turns.append(Message(role="user", parts=others, name=name))
    if not turns:
        turns.append(Message(role="user", parts=[], name=name))
    turns[-1].extra = extra
    return turns


def _assistant(wire: Record) -> list[Message]:
    calls = optional(wire, "tool_calls", _calls) or []
    if call := optional(wire, "function_call", _function_call):
        calls.append(call)
    content = optional(wire, "content", read_content) if calls else required(wire, "content", read_content)
    parts: list[Part] = [*(content or ()), *calls]
    name = optional(wire, "name", string)
    return [Message(role="assistant", parts=parts, name=name, extra=fields.rest_of(wire, _FIELDS))]


def _tool(wire: Record) -> list[Message]:
    """Read a tool's answer as OpenAI writes it."""
    call_id = required(wire, "tool_call_id", filled_string)
    return [Message(role="tool", parts=[_result(wire, call_id)])]


def _function(wire: Record) -> list[Message]:
    """Read the answer of a function, as OpenAI wrote it before calls had ids."""
    required(wire, "name", filled_string)
    return [Message(role="tool", parts=[_result(wire, optional(wire, "tool_call_id", string) or "")])]


def _result(wire: Record, call_id: str) -> ToolResult:
    content = optional(wire, "content", read_result_content) or []
    return ToolResult(call_id=call_id, parts=content, name=optional(wire, "name", string))


def _call(value: Any) -> ToolCall:
    wire = record(value)
    call_id = required(wire, "id", filled_string)
    call = required(wire, "function", _function_call)
    call.id = call_id
    return call


def _function_call(value: Any) -> ToolCall:
    wire = record(value)
    arguments = wire.get("arguments")
    if isinstance(arguments, dict):
        arguments = encode(arguments).decode()
    if arguments is not None and not isinstance(arguments, str):
        raise Malformed("must be a string", "arguments")
    return ToolCall(id="", name=required(wire, "name", filled_string), arguments=arguments or "")


def read_system(value: Any) -> list[Part]:
    """Read `system`: without Claude Code's first block, which names its build and would differ from one to the next."""
    parts = read_system_content(value)
    return [part for part in parts if not (isinstance(part, Text) and part.text.startswith(_BILLING))]


_BILLING = "x-anthropic-billing-header:"
_ROLES: dict[str, Callable[[Record], list[Message]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
    "developer": _instruction("developer"),
    "tool": _tool,
    "function": _function,
}
_read_by_role = fields.pick(_ROLES, "role")
_messages = list_of(lambda value: _read_by_role(record(value)), MAX_MESSAGES)
_calls = list_of(_call, MAX_CALLS)
