"""Anthropic Messages, provider side: writes `tools` and `tool_choice`.

Knows the kinds of tools. Must never know a provider by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    OpaqueTool,
    Target,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, object_root
from apps.gateway.dialects.chat.anthropic.provider.write_messages import with_cache_mark
from apps.gateway.dialects.chat.anthropic.shared.wire import NAME
from apps.kernel.errors import InvalidRequest

Record = dict[str, Any]

_WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_ANY_OBJECT: Record = {"type": "object", "properties": {}}
_MODES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


def write_tools(wire: Record, chat: Chat, target: Target, *, same_dialect: bool) -> None:
    """Add tools and the choice among them. Raises InvalidRequest for one that only another format has words for."""
    choice = chat.tool_choice
    asked = chat.tools or []
    if chat.web_search and not any(isinstance(tool, WebSearchTool) for tool in asked):
        asked = [*asked, WebSearchTool()]
    tools = [_tool(tool, f"tools[{at}]", target, same_dialect=same_dialect) for at, tool in enumerate(asked)]
    if choice is not None and choice.allowed:
        tools = [tool for tool in tools if tool["name"] in choice.allowed]
    if not tools and not same_dialect:
        tools = _tools_of_history(chat)
    if tools:
        wire["tools"] = tools
        if choice is not None or chat.parallel_tool_calls is False:
            wire["tool_choice"] = tool_choice_of(choice or ToolChoice(mode="auto"), chat.parallel_tool_calls)


def _tool(tool: Tool, place: str, target: Target, *, same_dialect: bool) -> Record:
    if isinstance(tool, FunctionTool):
        wire: Record = {"name": tool.name}
        if tool.description is not None:
            wire["description"] = tool.description
        wire["input_schema"] = (tool.parameters or _ANY_OBJECT) if same_dialect else _parameters(tool, place)
        if tool.strict is not None:
            wire["strict"] = tool.strict
        return with_cache_mark({**(tool.extra or {}), **wire} if same_dialect else wire, tool)
    if isinstance(tool, WebSearchTool):
        return _search(tool, place, target, same_dialect=same_dialect)
    if isinstance(tool, OpaqueTool) and tool.dialect == NAME:
        return dict(tool.data)
    raise InvalidRequest(
        "A tool is of a kind that this model's provider does not have", code="unsupported_feature", param=place
    )


def _parameters(tool: FunctionTool, place: str) -> Record:
    try:
        return object_root(tool.parameters)
    except UnsupportedSchema:
        raise InvalidRequest(
            "A function's parameters must be an object for this model's provider",
            code="unsupported_feature",
            param=f"{place}.function.parameters",
        ) from None


def _search(tool: WebSearchTool, place: str, target: Target, *, same_dialect: bool) -> Record:
    wire: Record = {**_WEB_SEARCH, **((tool.extra or {}) if same_dialect else {})}
    if (most := tool.max_uses or target.max_searches) is not None:
        wire["max_uses"] = most
    if tool.user_location is not None:
        wire["user_location"] = tool.user_location if same_dialect else {"type": "approximate", **tool.user_location}
    if tool.search_context_size is not None:
        target.note_dropped(f"{place}.search_context_size", "the provider's search decides that by itself")
    return with_cache_mark(wire, tool)


def _tools_of_history(chat: Chat) -> list[Record]:
    """Return the tools that were called before: a conversation with calls is refused without them."""
    parts = [part for message in chat.messages for part in message.parts]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    if not names and any(isinstance(part, ToolResult) for part in parts):
        names = {"tool": None}
    return [{"name": name, "input_schema": _ANY_OBJECT} for name in names]


def tool_choice_of(choice: ToolChoice, parallel: bool | None) -> Record:
    """Return a choice of tools, and whether one is called at a time, as the field says it."""
    wire: Record = {"type": _MODES[choice.mode]}
    if choice.mode == "named":
        wire["name"] = choice.name
    if parallel is False and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return wire
