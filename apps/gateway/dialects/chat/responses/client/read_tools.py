"""OpenAI Responses, client side: reads tools and the choice among them.

Functions and web searches are canonical. Custom tools and namespaces travel as they are and are emulated where a format
lacks them (`dialects/adapting/emulated_tools.py`); tools that a provider runs itself are only for providers of this
format.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import FunctionTool, OpaqueTool, Tool, ToolChoice, WebSearchTool
from apps.gateway.dialects.chat.responses.shared.wire import NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)

# Far beyond any model's.
MAX_TOOLS: Final = 1_000
SEARCH: Final = "web_search"
_SEARCHES: Final = (SEARCH, "web_search_preview")
# Tools that a provider runs, or that a model was trained to call, by type.
_NATIVE: Final = (
    *("file_search", "code_interpreter", "image_generation", "mcp", "local_shell", "shell", "apply_patch"),
    *("computer", "computer_use_preview", "tool_search", "programmatic_tool_calling", "x_search"),
)
_KNOWN: Final = ("function", "custom", "namespace", *_SEARCHES, *_NATIVE)
_FUNCTION_FIELDS: Final = frozenset({"type", "name", "description", "parameters", "strict"})
_SEARCH_FIELDS: Final = frozenset({"user_location", "search_context_size"})


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind: str = required(wire, "type", filled_string)
    if kind == "function":
        return _function(wire)
    if kind.startswith(_SEARCHES):
        return _web_search(wire)
    if kind == "custom":
        _check_custom(wire)
    elif kind == "namespace":
        required(wire, "name", filled_string)
        required(wire, "tools", list_of(_check_inner, MAX_TOOLS))
    elif kind not in _NATIVE:
        raise Malformed(f"{kind[:100]} is not a type of tool: must be one of {', '.join(_KNOWN)}", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _function(wire: Record) -> FunctionTool:
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=optional(wire, "parameters", record),
        strict=optional(wire, "strict", boolean),
        extra=fields.rest_of(wire, _FUNCTION_FIELDS),
    )


def _web_search(wire: Record) -> WebSearchTool:
    """Read a web search; its type and what else only OpenAI's knows come back as they are."""
    return WebSearchTool(
        user_location=optional(wire, "user_location", record),
        search_context_size=optional(wire, "search_context_size", one_of("low", "medium", "high")),
        extra=fields.rest_of(wire, _SEARCH_FIELDS),
    )


def _check_custom(wire: Record) -> None:
    required(wire, "name", filled_string)
    optional(wire, "description", string)
    form = optional(wire, "format", record)
    if form is not None and fields.within("format", lambda it: required(it, "type", _format), form) == "grammar":
        fields.within("format", _check_grammar, form)


def _check_grammar(form: Record) -> None:
    for name in ("definition", "syntax"):
        required(form, name, filled_string)


def _check_inner(value: Any) -> None:
    """Check a tool of a namespace."""
    wire = record(value)
    if required(wire, "type", one_of("function", "custom")) == "custom":
        _check_custom(wire)
    else:
        _function(wire)


def read_tool_choice(value: Any) -> ToolChoice:
    """Read `tool_choice`: a word, a tool by its name or its type, or the tools that are allowed."""
    if isinstance(value, str):
        return ToolChoice(mode=_word(value))
    wire = record(value)
    kind = required(wire, "type", filled_string)
    if kind == "allowed_tools":
        mode = required(wire, "mode", one_of("auto", "required"))
        return ToolChoice(mode=mode, allowed=tuple(required(wire, "tools", _names)))
    tool = optional(wire, "name", filled_string) if kind == "mcp" else None
    return ToolChoice(mode="named", name=_chosen(wire), server_tool=tool)


def _chosen(value: Any) -> str:
    """Return the name that a tool is chosen by: its own, a server's of an MCP, else its type."""
    wire = record(value)
    kind: str = required(wire, "type", filled_string)
    if kind in ("function", "custom", "namespace"):
        return str(required(wire, "name", filled_string))
    if kind == "mcp":
        return str(required(wire, "server_label", filled_string))
    if kind.startswith(_SEARCHES):
        return SEARCH
    if kind not in _NATIVE:
        raise Malformed(f"must be one of allowed_tools, {', '.join(_KNOWN)}", "type")
    return kind


_word = one_of("auto", "none", "required")
_format = one_of("text", "grammar")
_names = list_of(_chosen, MAX_TOOLS)
read_tools = list_of(_tool, MAX_TOOLS)
