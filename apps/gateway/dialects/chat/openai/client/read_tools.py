"""OpenAI Chat Completions, client side: reads `tools` and `tool_choice`, and the legacy `functions`.

Knows the kinds of tools, and `functions`, which they replaced. Must never know which provider has which.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, FunctionTool, OpaqueTool, Tool, ToolChoice, WebSearchTool
from apps.gateway.dialects.chat.openai.client.read_messages import cache_mark
from apps.gateway.dialects.chat.openai.shared.wire import NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    boolean,
    filled_string,
    integer,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)

# Far beyond any model's.
MAX_TOOLS = 1_000
# What only a tool read from `functions` keeps in `extra`: its client expects a `function_call` in the answer.
_LEGACY = {"type": "function"}

# Kinds of tools that only some providers of this format have, those named `provider:tool` besides: they travel as they
# are.
_OWN_TOOLS = frozenset(
    {
        "custom",
        "browser_search",
        "builtin_function",
        "code_execution",
        "code_interpreter",
        "file_search",
        "image_generation",
        "mcp",
        "retrieval",
        "web_search_preview",
        "x_search",
    }
)
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_TOOL_FIELDS = frozenset({"type", "function", "cache_control"})
_SEARCH_FIELDS = frozenset({"type", "user_location", "search_context_size", "max_uses", "cache_control"})


def is_legacy(chat: Chat) -> bool:
    """Return whether the client speaks of `functions`, which tools replaced."""
    return bool(chat.tools) and chat.dialect == NAME and any(tool.extra == _LEGACY for tool in chat.tools or ())


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind = wire.get("type")
    if kind == "function" or (kind is None and "function" in wire):
        tool = required(wire, "function", _function)
        tool.cache = cache_mark(wire)
        if extra := fields.rest_of(wire, _TOOL_FIELDS):
            tool.extra = {**extra, **(tool.extra or {})}
        return tool
    if kind == "web_search":
        return WebSearchTool(
            user_location=optional(wire, "user_location", record),
            search_context_size=optional(wire, "search_context_size", one_of("low", "medium", "high")),
            max_uses=optional(wire, "max_uses", integer(1)),
            cache=cache_mark(wire),
            extra=fields.rest_of(wire, _SEARCH_FIELDS),
        )
    own = required(wire, "type", filled_string)
    if own not in _OWN_TOOLS and ":" not in own:
        raise Malformed("must be one of function, custom, web_search", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _function(value: Any) -> FunctionTool:
    wire = record(value)
    unknown = fields.rest_of(wire, _FUNCTION_FIELDS)
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=optional(wire, "parameters", record),
        strict=optional(wire, "strict", boolean),
        extra=None if unknown is None else {"function": unknown},
    )


def _legacy_function(value: Any) -> FunctionTool:
    tool = _function(value)
    tool.extra = _LEGACY
    return tool


def read_tool_choice(value: Any) -> ToolChoice:
    """Read `tool_choice`."""
    if isinstance(value, str):
        return ToolChoice(mode=_choice_word(value))
    wire = record(value)
    kind = wire.get("type", "function")
    if kind == "allowed_tools":
        return required(wire, "allowed_tools", _allowed_tools)
    if kind in ("function", "custom"):
        return ToolChoice(mode="named", name=required(wire, kind, _name))
    raise Malformed("must be one of function, custom, allowed_tools", "type")


def _allowed_tools(value: Any) -> ToolChoice:
    wire = record(value)
    mode = required(wire, "mode", one_of("auto", "required"))
    return ToolChoice(mode=mode, allowed=tuple(required(wire, "tools", _allowed_names)))


def _allowed_name(value: Any) -> str:
    wire = record(value)
    kind = required(wire, "type", filled_string)
    return required(wire, kind, _name) if kind in ("function", "custom") else kind


def _name(value: Any) -> str:
    return required(record(value), "name", filled_string)


def read_function_choice(value: Any) -> ToolChoice:
    """Read `function_call`, which `tool_choice` replaced."""
    if isinstance(value, str):
        return ToolChoice(mode=one_of("auto", "none")(value))
    return ToolChoice(mode="named", name=_name(value))


_choice_word = one_of("auto", "none", "required")
_allowed_names = list_of(_allowed_name, MAX_TOOLS)
read_tools = list_of(_tool, MAX_TOOLS)
read_functions = list_of(_legacy_function, MAX_TOOLS)
