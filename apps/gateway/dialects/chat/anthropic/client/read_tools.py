"""Anthropic Messages, client side: reads `tools` and `tool_choice`.

Knows the kinds of tools. Must never know which provider has which.
"""

from __future__ import annotations

import re
from typing import Any

from apps.gateway.canonical.chat import FunctionTool, OpaqueTool, Tool, ToolChoice, WebSearchTool
from apps.gateway.dialects.chat.anthropic.client.read_blocks import cache_mark
from apps.gateway.dialects.chat.anthropic.shared.wire import NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
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
WEB_SEARCH = "web_search_"

# Tools of Anthropic's own: most have the date of their version.
_OWN_TOOL = re.compile(r"[a-z0-9_]+_[0-9]{8}|mcp_toolset|tool_search_tool_(bm25|regex)")
_FUNCTION_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})
_SEARCH_FIELDS = frozenset({"max_uses", "user_location", "cache_control"})
_MODES = {"auto": "auto", "none": "none", "any": "required", "tool": "named"}


def _tool(value: Any) -> Tool:
    wire = record(value)
    kind = optional(wire, "type", filled_string)
    if kind is None or kind == "custom":
        return FunctionTool(
            name=required(wire, "name", filled_string),
            description=optional(wire, "description", string),
            parameters=required(wire, "input_schema", record),
            strict=optional(wire, "strict", boolean),
            cache=cache_mark(wire),
            extra=fields.rest_of(wire, _FUNCTION_FIELDS),
        )
    if kind.startswith(WEB_SEARCH):
        return _web_search(wire)
    if not _OWN_TOOL.fullmatch(kind):
        raise Malformed("must be custom, or a kind of Anthropic's with its date (bash_20250124)", "type")
    return OpaqueTool(dialect=NAME, data=wire)


def _web_search(wire: Record) -> WebSearchTool:
    """Read a web search; its kind and what else only Anthropic's search knows come back as they are."""
    return WebSearchTool(
        user_location=optional(wire, "user_location", record),
        max_uses=optional(wire, "max_uses", integer(1)),
        cache=cache_mark(wire),
        extra=fields.rest_of(wire, _SEARCH_FIELDS),
    )


def read_tool_choice(value: Any) -> tuple[ToolChoice, bool | None]:
    """Read `tool_choice`, and whether calls may be parallel (None when it does not say)."""
    wire = record(value)
    kind = required(wire, "type", one_of(*_MODES))
    name = required(wire, "name", filled_string) if kind == "tool" else None
    single = optional(wire, "disable_parallel_tool_use", boolean)
    mode: Any = _MODES[kind]
    return ToolChoice(mode=mode, name=name), None if single is None else not single


read_tools = list_of(_tool, MAX_TOOLS)
