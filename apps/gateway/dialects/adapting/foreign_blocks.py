"""Foreign content: blocks and items of another format are dropped with a note, applied, rewritten as text, or refused.

An earlier answer's blocks (searches of a provider's own, their results) are left out: the answer's text is kept beside
them. Content from a client or its tools is written as text where possible; else it is refused: the model would miss it.

Two kinds change what follows them: configuration updates of the Responses format change how much a model thinks, and
system messages of Anthropic's add and withdraw tools, state an effort, or hold for one turn only. A provider of another
format gets the final tools and effort; other details of a change are noted as dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    CacheMark,
    Chat,
    FunctionTool,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    ReasoningRequest,
    Target,
    Text,
    Tool,
    ToolResult,
)
from apps.gateway.dialects.adapting.unsupported_fields import content_path, kind_of, message_path, wants_citations
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

# Parts that may be, or hold, blocks that not every format has.
_HOLDING = (Opaque, ToolResult)
# Bedrock's block for a result of a search of the client's.
_BEDROCKS_RESULT: Final = "searchResult"
_encode: Final = msgspec.json.Encoder().encode


def drop_foreign_blocks(chat: Chat, target: Target, dialect: str) -> Chat:
    """Return the chat with no block of a format other than `dialect`; one without any is returned as it is.

    Raises InvalidRequest for a block that can neither be said in words nor be left out.
    """
    if dialect != ANTHROPIC:
        chat = apply_tool_changes(chat, target)
    if chat.kinds.isdisjoint(_HOLDING) or not any(
        _is_foreign(part, dialect) for message in chat.messages for part in message.parts
    ):
        return chat
    chat = apply_updates(chat)
    messages = [
        _message(message, content_path(chat, message_path(chat, at)), target, dialect)
        for at, message in enumerate(chat.messages)
    ]
    return replace(chat, messages=messages, source=None)


def _is_foreign(part: Part, dialect: str) -> bool:
    if isinstance(part, ToolResult):
        return any(_is_foreign(inner, dialect) for inner in part.parts)
    return isinstance(part, Opaque) and part.dialect != dialect


def _message(message: Message, place: str, target: Target, dialect: str) -> Message:
    """Return a message, whose content is at `place`, without foreign blocks."""
    parts: list[Part] = []
    for at, part in enumerate(message.parts):
        if not _is_foreign(part, dialect):
            parts.append(part)
        elif message.role == "assistant":
            target.note_dropped(place, "blocks of an answer that only its own format has words for")
        elif isinstance(part, ToolResult):
            rewritten = [
                _rewrite_as_text(inner, place, target) if _is_foreign(inner, dialect) else inner for inner in part.parts
            ]
            parts.append(replace(part, parts=rewritten))
        else:
            # Cohere's clients have documents beside their messages.
            where = "documents" if _is_coheres(part) else f"{place}[{at}]" if "[" in place else place
            parts.append(_rewrite_as_text(part, where, target))
    return replace(message, parts=parts)


def _rewrite_as_text(part: Part, place: str, target: Target) -> Text:
    """Return a block in words; a wish to have it cited is noted. Raises InvalidRequest as `_as_text`."""
    data: Record = part.data if isinstance(part, Opaque) and isinstance(part.data, dict) else {}
    if _is_coheres(part):
        target.note_dropped(place, "documents are sent as text, and not cited by this model's provider")
    elif any(map(wants_citations, (data, data.get(_BEDROCKS_RESULT)))):
        target.note_dropped(f"{place}.citations", "documents are not cited by this model's provider")
    return _as_text(part, place)


def _is_coheres(part: Part) -> bool:
    """Return whether a part is a document of Cohere's, which its models always cite."""
    return isinstance(part, Opaque) and part.dialect == COHERE and kind_of(part.data) == "document"


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


def _bedrocks_search_result(data: Record) -> list[Any] | None:
    """Return a search result as Bedrock has it."""
    result = data.get(_BEDROCKS_RESULT)
    return _search_result(result) if isinstance(result, dict) else None


def _tool_reference(data: Record) -> list[Any]:
    """Return the name of a tool that a search of the client's found: here all tools are shown to the model anyway."""
    return [data.get("tool_name")]


def _document(data: Record) -> list[Any] | None:
    """Return a document that is written out: in blocks of text (one with images in it cannot be said), or, at Cohere,
    as a text or as fields with the document's id."""
    if isinstance(text := data.get("document"), str):
        return [text]
    if isinstance(text, dict):
        members = text.get("data")
        named = [f"{name}: {_said(value)}" for name, value in members.items()] if isinstance(members, dict) else []
        return [text.get("id"), *named]
    source = data.get("source")
    content = source.get("content") if isinstance(source, dict) and source.get("type") == "content" else None
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or any(kind_of(block) != "text" for block in content):
        return None
    return [data.get("title"), data.get("context"), *_texts(content)]


def _said(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _texts(blocks: list[Any]) -> list[Any]:
    return [block.get("text") for block in blocks if isinstance(block, dict)]


_WORDS: dict[str, Callable[[Record], list[Any] | None]] = {
    "search_result": _search_result,
    _BEDROCKS_RESULT: _bedrocks_search_result,
    "tool_reference": _tool_reference,
    "document": _document,
}


CONFIGURATION_UPDATE: Final = "configuration_update"


def apply_updates(chat: Chat) -> Chat:
    """Return the chat with the latest effort that an item states, and without these items; one that states the form of
    answers stays."""
    updates = [part for message in chat.messages for part in message.parts if _is_of_effort(part)]
    if not updates:
        return chat
    messages = [kept for message in chat.messages if (kept := _without_updates(message)).parts or not message.parts]
    efforts = [_effort_of(part) for part in updates]
    effort = next((effort for effort in reversed(efforts) if effort is not None), None)
    reasoning = chat.reasoning
    if effort is not None:
        reasoning = replace(reasoning or ReasoningRequest(), effort=effort)
    return replace(chat, messages=messages, reasoning=reasoning, source=None)


def _without_updates(message: Message) -> Message:
    return replace(message, parts=[part for part in message.parts if not _is_of_effort(part)])


def _is_of_effort(part: Part) -> bool:
    data: Any = part.data if isinstance(part, Opaque) else None
    return isinstance(data, dict) and data.get("type") == CONFIGURATION_UPDATE and data.get("text") is None


def _effort_of(part: Part) -> Any:
    """Return the effort that an update states, which its reader has checked."""
    data: Any = part.data if isinstance(part, Opaque) else {}
    return (data.get("reasoning") or {}).get("effort")


ANTHROPIC: Final = "anthropic"
COHERE: Final = "cohere"
_ADDITION, _REMOVAL = "tool_addition", "tool_removal"
_CONFIG: Final = "output_config"
# Until when a system message is shown to the model.
_END, _NEXT_TURN = "clear_at", "next_user_message"
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_FUNCTION_FIELDS: Final = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})
_UNKNOWN: Final = "a field that is not known to this model's provider"


def apply_tool_changes(chat: Chat, target: Target) -> Chat:
    """Return the chat with what its system messages change; one that changes nothing is returned as it is. A change
    that cannot be read stays where it is."""
    if chat.dialect != ANTHROPIC or not any(map(_changes, chat.messages)):
        return chat
    changes = _Changes(chat, target)
    last = max((at for at, message in enumerate(chat.messages) if message.role in ("user", "tool")), default=0)
    messages = [
        kept
        for at, message in enumerate(chat.messages)
        if (kept := changes.without(message, over=at < last)) is not None
    ]
    effort = changes.effort or chat.effort
    return replace(chat, messages=messages, tools=changes.tools() or None, effort=cast(Any, effort), source=None)


def _changes(message: Message) -> bool:
    """Tell whether a message changes what holds from there on."""
    if message.role != "system":
        return False
    return not (message.extra or {}).keys().isdisjoint((_CONFIG, _END)) or any(
        _change_of(part) is not None for part in message.parts
    )


def _change_of(part: Part) -> dict[str, Any] | None:
    data: Any = part.data if isinstance(part, Opaque) and part.dialect == ANTHROPIC else None
    known = isinstance(data, dict) and data.get("type") in (_ADDITION, _REMOVAL) and isinstance(data.get("tool"), dict)
    return data if known else None


class _Changes:
    """The tools as the messages so far leave them, and the latest effort."""

    def __init__(self, chat: Chat, target: Target) -> None:
        self.effort: str | None = None
        self._target = target
        self._marks = not target.facts.get("prompt_cache")
        self._known: dict[str, Tool] = {}
        self._unnamed: list[Tool] = []
        self._withdrawn: set[str] = set()
        for tool in chat.tools or ():
            name = _name_of(tool)
            if name is None:
                self._unnamed.append(tool)
            else:
                self._known[name] = tool

    def tools(self) -> list[Tool]:
        """Return the tools that are there in the end."""
        named = [tool for name, tool in self._known.items() if name not in self._withdrawn]
        return [*named, *self._unnamed]

    def without(self, message: Message, *, over: bool) -> Message | None:
        """Return a message without its changes, which are taken in; None for one that says nothing else, or nothing
        any more: `over` tells that the user has spoken since."""
        if not _changes(message):
            return message
        extra = dict(message.extra or {})
        ends = extra.pop(_END, None) == _NEXT_TURN
        config = extra.pop(_CONFIG, None)
        for name, value in config.items() if isinstance(config, dict) else ():
            if name == "effort" and value in _EFFORTS:
                self.effort = value
            elif value is not None:
                self._target.note_dropped(f"messages.{_CONFIG}.{name}", _UNKNOWN)
        parts = [part for part in message.parts if (change := _change_of(part)) is None or not self._take(change)]
        if not parts or (ends and over):
            return None
        return replace(message, parts=parts, extra=extra or None)

    def _take(self, change: dict[str, Any]) -> bool:
        """Take in a change; tell whether it could be read."""
        tool: dict[str, Any] = change["tool"]
        if self._marks and change.get("cache_control") is not None:
            self._target.note_dropped("messages.content.cache_control", _UNKNOWN)
        if tool.get("type") == "tool_definition" and change["type"] == _ADDITION:
            made = _tool_of(tool.get("definition"))
            name = None if made is None else _name_of(made)
            if made is None or name is None:
                return False
            self._known[name] = made
            self._withdrawn.discard(name)
            return True
        name = tool.get("name") if tool.get("type") == "tool_reference" else None
        if not isinstance(name, str):
            return False
        if change["type"] == _ADDITION:
            self._withdrawn.discard(name)
        else:
            self._withdrawn.add(name)
        return True


def _name_of(tool: Tool) -> str | None:
    if isinstance(tool, FunctionTool):
        return tool.name
    name: Any = tool.data.get("name") if isinstance(tool, OpaqueTool) and isinstance(tool.data, dict) else None
    return name if isinstance(name, str) else None


def _tool_of(definition: Any) -> Tool | None:
    """Return a tool that is defined by value, else None. A tool of Anthropic's own is kept as it is."""
    if not isinstance(definition, dict):
        return None
    if definition.get("type") not in (None, "custom"):
        return OpaqueTool(dialect=ANTHROPIC, data=definition)
    name, schema, about = (definition.get(key) for key in ("name", "input_schema", "description"))
    if not (isinstance(name, str) and name and isinstance(schema, dict)):
        return None
    strict, mark = definition.get("strict"), definition.get("cache_control")
    ttl = mark.get("ttl") if isinstance(mark, dict) else None
    own = {key: value for key, value in definition.items() if key not in _FUNCTION_FIELDS and value is not None}
    return FunctionTool(
        name=name,
        description=about if isinstance(about, str) else None,
        parameters=schema,
        strict=strict if isinstance(strict, bool) else None,
        cache=CacheMark(ttl=ttl if isinstance(ttl, str) else None) if isinstance(mark, dict) else None,
        extra=own or None,
    )
