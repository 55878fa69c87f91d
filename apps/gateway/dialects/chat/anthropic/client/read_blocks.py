"""Anthropic Messages, client side: reads content blocks into canonical parts.

Knows the kinds of blocks; one that it has no word for travels as it is. Must never know roles.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from apps.gateway.canonical.chat import CacheMark, File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat.anthropic.shared.wire import NAME, SIGNATURE_FORMAT, encode
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
