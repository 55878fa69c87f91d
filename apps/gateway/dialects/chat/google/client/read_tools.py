"""Google generateContent, client side: reads tools, and `toolConfig` as the choice among them.

Knows the kinds of tools; those that only Google runs travel as they are. Must never know which model has which.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import FunctionTool, OpaqueTool, Tool, ToolChoice, WebSearchTool
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, object_root
from apps.gateway.dialects.adapting.unsupported_fields import kind_of
from apps.gateway.dialects.chat.google.client.read_schema import json_schema_of, ordered
from apps.gateway.dialects.chat.google.shared.wire import NAME
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    filled_string,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)

# Far beyond any model's.
MAX_TOOLS = 1_000
FUNCTIONS, SEARCH = "functionDeclarations", "googleSearch"
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
_CHOICE_FIELDS = frozenset({"mode", "allowedFunctionNames"})
_MODES = {"MODE_UNSPECIFIED": None, "AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}


def read_tools(value: Any) -> list[Tool]:
    """Read `tools`: each entry may be many functions and several tools of Google's."""
    entries = [value] if isinstance(value, dict) else value
    tools = [tool for entry in _entries(entries) for tool in entry]
    if len(tools) > MAX_TOOLS:
        raise Malformed(f"must hold at most {MAX_TOOLS} tools")
    return tools


def _entry(value: Any) -> list[Tool]:
    wire = record(value)
    declared = wire.get(FUNCTIONS)
    tools: list[Tool] = []
    if declared is not None:
        tools.extend(fields.within(FUNCTIONS, _functions, [declared] if isinstance(declared, dict) else declared))
    for name, said in wire.items():
        if name == SEARCH and said is not None:
            tools.append(WebSearchTool(extra=fields.within(name, record, said) or None))
        elif name != FUNCTIONS and said is not None:
            tools.append(OpaqueTool(dialect=NAME, data={name: fields.within(name, _anything, said)}))
    return tools


def _anything(value: Any) -> Any:
    return value if isinstance(value, list) else record(value)


def _function(value: Any) -> FunctionTool:
    wire = record(value)
    schema = optional(wire, "parametersJsonSchema", record)
    stated = optional(wire, "parameters", record)
    if schema is not None and stated is not None:
        raise Malformed("contradicts parametersJsonSchema", "parameters")
    if schema is not None:
        schema = ordered(schema)
    if stated is not None:
        # A call always has an object of arguments, be it an empty one.
        schema = json_schema_of({name: value for name, value in stated.items() if name != "nullable"})
    try:
        object_root(schema)
    except UnsupportedSchema:
        raise Malformed("must be of the type object", "parameters" if stated else "parametersJsonSchema") from None
    return FunctionTool(
        name=required(wire, "name", filled_string),
        description=optional(wire, "description", string),
        parameters=schema,
        extra=fields.rest_of(wire, _FUNCTION_FIELDS),
    )


def read_tool_config(value: Any) -> tuple[ToolChoice | None, Record | None]:
    """Read `toolConfig`: the choice among functions, and what else it says."""
    wire = record(value)
    choice, rest = optional(wire, "functionCallingConfig", _choice) or (None, None)
    others = fields.rest_of(wire, frozenset({"functionCallingConfig"})) or {}
    if rest:
        others["functionCallingConfig"] = rest
    return choice, others or None


def _choice(value: Any) -> tuple[ToolChoice | None, Record | None]:
    wire = record(value)
    word = optional(wire, "mode", one_of(*_MODES)) or "MODE_UNSPECIFIED"
    names = optional(wire, "allowedFunctionNames", _names) or []
    rest = fields.rest_of(wire, _CHOICE_FIELDS) or {}
    mode: Any = _MODES[word]
    if word == "VALIDATED" and not names:
        return None, {**rest, "mode": word}
    if mode is None:
        return None, rest or None
    if mode == "required" and len(names) == 1:
        return ToolChoice(mode="named", name=names[0]), rest or None
    return ToolChoice(mode=mode, allowed=() if mode == "none" else tuple(names)), rest or None


_functions = list_of(_function, MAX_TOOLS)
_names = list_of(filled_string, MAX_TOOLS)
_entries = list_of(_entry, MAX_TOOLS)


def tool_path(tool: Tool) -> str:
    """Return where the client finds a tool: one entry of `tools` may hold many."""
    if isinstance(tool, OpaqueTool):
        return f"tools.{kind_of(tool.data)}"
    return "tools.functionDeclarations" if isinstance(tool, FunctionTool) else "tools.googleSearch"
