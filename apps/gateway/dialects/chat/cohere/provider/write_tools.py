"""Cohere Chat v2, provider side: writes `tools` and `tool_choice`. A named tool is sent alone and required.

Knows what may stand beside what. Must never know a model by name.
"""

from __future__ import annotations

from apps.gateway.canonical.chat import Chat, FunctionTool, Target, WebSearchTool
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.cohere.shared.wire import Record, refused, without_none

_NO_PARAMETERS: Record = {"type": "object", "properties": {}}
_MODES = {"required": "REQUIRED", "named": "REQUIRED", "none": "NONE"}


def write_tools(chat: Chat, target: Target) -> Record:
    """Return the fields that say which tools there are and whether they are called. Raises InvalidRequest."""
    if chat.web_search or any(isinstance(tool, WebSearchTool) for tool in chat.tools or ()):
        raise refused(
            "Web search is not available from this model's provider", "web_search" if chat.web_search else "tools"
        )
    tools = [tool for tool in chat.tools or () if isinstance(tool, FunctionTool)]
    if len(tools) < len(chat.tools or ()):
        raise refused("A tool is of a kind that this model's provider does not have", "tools")
    mode, tools = _chosen(chat, tools)
    if tools and chat.parallel_tool_calls is False:
        note_dropped(
            chat, target, "parallel_tool_calls", "this model's provider cannot be told to call one tool at a time"
        )
    return without_none(
        tools=[_tool(tool) for tool in tools] or None,
        strict_tools=_strict(tools, target),
        tool_choice=_MODES.get(mode) if tools else None,
    )


def _chosen(chat: Chat, tools: list[FunctionTool]) -> tuple[str, list[FunctionTool]]:
    """Return whether tools are called, and those to choose from. Raises InvalidRequest for a name that is none."""
    choice = chat.tool_choice
    if choice is None:
        return "auto", tools
    names = (choice.name,) if choice.mode == "named" else choice.allowed
    if not names:
        return choice.mode, tools
    chosen = [tool for tool in tools if tool.name in names]
    if not chosen:
        raise refused("tool_choice names no tool that there is", "tool_choice")
    return choice.mode, chosen


def _tool(tool: FunctionTool) -> Record:
    function = without_none(name=tool.name, description=tool.description, parameters=tool.parameters or _NO_PARAMETERS)
    return {"type": "function", "function": function}


def _strict(tools: list[FunctionTool], target: Target) -> bool | None:
    """Return whether arguments are bound to the schemas: for all tools or for none, and for none without a parameter
    that is required."""
    strict = [tool for tool in tools if tool.strict]
    if not strict:
        return None
    if len(strict) == len(tools) and all((tool.parameters or {}).get("required") for tool in tools):
        return True
    target.note_dropped(
        "tools", "this model's provider binds the arguments of all tools to their schemas or of none: not `strict`"
    )
    return None
