"""Types of checks of tool calls: the conversation by origin, the calls of an answer, and the marks on them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

# `stated`: by the client's program or its user; `model`: texts and arguments of earlier answers; `tool_result`:
# results of tools, which may be an attacker's words.
Origin = Literal["stated", "model", "tool_result"]


class ConversationText(NamedTuple):
    """One text of a conversation; `tool` is the tool whose result it is, empty for other texts."""

    origin: Origin
    text: str
    tool: str = ""


class ToolCallRequest(NamedTuple):
    """A tool call of an answer; `arguments` is its JSON value.

    `has_effects` is the tool's own statement (annotations of MCP); None where it states nothing.
    """

    tool: str
    arguments: Any
    has_effects: bool | None = None


class ArgumentMark(NamedTuple):
    """A value in a call's arguments whose only origin is the result of the tool `source`.

    `argument` is its path, such as `recipients[0]`; `kind` the kind of value. `value` is never stored.
    """

    tool: str
    argument: str
    kind: str
    source: str
    value: str
