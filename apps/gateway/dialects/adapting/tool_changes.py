"""Tool changes: system messages of Anthropic's that add and withdraw tools, state an effort, or hold for one turn only,
in mid-conversation.

A provider of another format gets the final tools and effort; the other details of a change are noted as dropped.
"""

from __future__ import annotations

from typing import Any, Final, cast

from msgspec.structs import replace

from apps.gateway.canonical.chat import CacheMark, Chat, FunctionTool, Message, Opaque, OpaqueTool, Part, Target, Tool

ANTHROPIC: Final = "anthropic"
_ADDITION, _REMOVAL = "tool_addition", "tool_removal"
_CONFIG: Final = "output_config"
# Until when a system message is shown to the model.
_END, _NEXT_TURN = "clear_at", "next_user_message"
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
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
