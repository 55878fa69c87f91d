"""Foreign content blocks: blocks of another dialect are dropped with a note, rewritten as text, or refused.

An earlier answer's blocks (searches of a provider's own, their results) are left out: the answer's text is kept beside
them. Content from a client or its tools is written as text where possible; else it is refused: the model would miss it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.chat import CacheMark, Chat, Message, Opaque, Part, Target, Text, ToolResult
from apps.gateway.dialects.adapting.configuration_updates import apply_updates
from apps.gateway.dialects.adapting.document_citations import wants_citations
from apps.gateway.dialects.adapting.tool_changes import ANTHROPIC, apply_tool_changes
from apps.gateway.dialects.adapting.unsupported_fields import content_path, kind_of, message_path
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

# Parts that may be, or hold, blocks that not every format has.
_HOLDING = (Opaque, ToolResult)


def drop_foreign_blocks(chat: Chat, target: Target, dialect: str) -> Chat:
    """Return the chat with no block of a format other than `dialect`; one without any is returned as it is.

    Raises InvalidRequest for a block that can neither be said in words nor be left out.
    """
    if dialect != ANTHROPIC:
        chat = apply_tool_changes(chat, target)
    if chat.kinds.isdisjoint(_HOLDING) or not any(
        _is_strange(part, dialect) for message in chat.messages for part in message.parts
    ):
        return chat
    chat = apply_updates(chat)
    messages = [
        _message(message, content_path(chat, message_path(chat, at)), target, dialect)
        for at, message in enumerate(chat.messages)
    ]
    return replace(chat, messages=messages, source=None)


def _is_strange(part: Part, dialect: str) -> bool:
    if isinstance(part, ToolResult):
        return any(_is_strange(inner, dialect) for inner in part.parts)
    return isinstance(part, Opaque) and part.dialect != dialect


def _message(message: Message, place: str, target: Target, dialect: str) -> Message:
    """Return a message, whose content is at `place`, without foreign blocks."""
    parts: list[Part] = []
    for at, part in enumerate(message.parts):
        if not _is_strange(part, dialect):
            parts.append(part)
        elif message.role == "assistant":
            target.note_dropped(place, "blocks of an answer that only its own format has words for")
        elif isinstance(part, ToolResult):
            said = [_said(inner, place, target) if _is_strange(inner, dialect) else inner for inner in part.parts]
            parts.append(replace(part, parts=said))
        else:
            parts.append(_said(part, f"{place}[{at}]" if "[" in place else place, target))
    return replace(message, parts=parts)


def _said(part: Part, place: str, target: Target) -> Text:
    """Return a block in words; a wish to have it cited is noted. Raises InvalidRequest as `_as_text`."""
    if isinstance(part, Opaque) and wants_citations(part.data):
        target.note_dropped(f"{place}.citations", "documents are not cited by this model's provider")
    return _as_text(part, place)


def _as_text(part: Part, place: str) -> Text:
    """Return a block in words. Raises InvalidRequest for one that has none."""
    data: Any = part.data if isinstance(part, Opaque) else {}
    kind = kind_of(data)
    words = _WORDS[kind](data) if kind in _WORDS else None
    if words is None:
        raise InvalidRequest(
            f"A message holds content that this model's provider has no form for: {kind}",
            code="unsupported_feature",
            param=place,
        )
    return Text(text="\n".join(word for word in words if isinstance(word, str)), cache=_mark_of(data))


def _mark_of(data: Record) -> CacheMark | None:
    """Return a block's mark of what to cache, or that of the last block in it: the words end where it does."""
    mark = data.get("cache_control")
    inner = data.get("content") or (data.get("source") or {}).get("content")
    if not isinstance(mark, dict):
        last = inner[-1] if isinstance(inner, list) and inner else None
        mark = last.get("cache_control") if isinstance(last, dict) else None
    if not isinstance(mark, dict):
        return None
    ttl = mark.get("ttl")
    return CacheMark(ttl=ttl if isinstance(ttl, str) else None)


def _search_result(data: Record) -> list[Any] | None:
    """Return a search result's title, source and text."""
    content = data.get("content")
    return [data.get("title"), data.get("source"), *_texts(content)] if isinstance(content, list) else None


def _tool_reference(data: Record) -> list[Any]:
    """Return the name of a tool that a search of the client's found: here all tools are shown to the model anyway."""
    return [data.get("tool_name")]


def _document(data: Record) -> list[Any] | None:
    """Return a document that is written out in blocks of text; one with images in it cannot be said."""
    source = data.get("source")
    content = source.get("content") if isinstance(source, dict) and source.get("type") == "content" else None
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or any(kind_of(block) != "text" for block in content):
        return None
    return [data.get("title"), data.get("context"), *_texts(content)]


def _texts(blocks: list[Any]) -> list[Any]:
    return [block.get("text") for block in blocks if isinstance(block, dict)]


_WORDS: dict[str, Callable[[Record], list[Any] | None]] = {
    "search_result": _search_result,
    "tool_reference": _tool_reference,
    "document": _document,
}
