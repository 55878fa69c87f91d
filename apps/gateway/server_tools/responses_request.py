"""OpenAI Responses: reads which MCP servers a request names, with which of their tools; refusals name the field.

Fields that the gateway cannot honour are refused: there are no approvals, and servers get the credentials that they
were registered with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    optional,
    record,
    required,
)
from apps.gateway.server_tools.toolset import MAX_SERVERS, Toolset, WantedServer
from apps.mcp_servers.upstream.tools import MAX_TOOLS, Tool

KIND: Final = "mcp"
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_READ: Final = frozenset({"type", "server_label", "server_url", "server_description", "allowed_tools"})
_OWN_CREDENTIALS: Final = "the server is sent the credentials that it was registered with; leave it out"
_WHY_NOT: Final = {
    "authorization": _OWN_CREDENTIALS,
    "headers": _OWN_CREDENTIALS,
    "connector_id": "connectors are not known here: name a registered MCP server",
    "tunnel_id": "tunnels are not known here: name a registered MCP server",
}
# Values that ask for what happens anyway.
_USUAL: Final[dict[str, tuple[Any, ...]]] = {
    "require_approval": ("never",),
    "defer_loading": (False,),
    "allowed_callers": (["direct"],),
    "headers": ({},),
}


def names_servers(wire: Record) -> bool:
    """Return whether a request names servers."""
    tools = wire.get("tools")
    return isinstance(tools, list) and any(isinstance(tool, dict) and tool.get("type") == KIND for tool in tools)


def read_servers(wire: Record) -> list[WantedServer]:
    """Return the servers that a request names. Raises InvalidRequest."""
    found = []
    try:
        for number, tool in enumerate(wire["tools"]):
            if isinstance(tool, dict) and tool.get("type") == KIND:
                place = f"tools[{number}]"
                found.append(fields.within(place, _reader(place), tool))
        if len(found) > MAX_SERVERS:
            raise Malformed(f"must name at most {MAX_SERVERS} MCP servers", "tools")
    except Malformed as refusal:
        raise refusal.as_error() from None
    return found


def own_names(wire: Record) -> frozenset[str]:
    """Return the names of a request's own tools."""
    return frozenset(str(tool["name"]) for tool in wire["tools"] if isinstance(tool, dict) and "name" in tool)


def chosen_tools(choice: Any, toolset: Toolset) -> Any:
    """Return `tool_choice` with functions instead of servers. Raises Malformed."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == KIND:
        names = _functions_of(choice, toolset)
        return {"type": "allowed_tools", "mode": "required", "tools": names} if len(names) > 1 else names[0]
    if choice.get("type") != "allowed_tools" or not isinstance(choice.get("tools"), list):
        return choice
    tools: list[Any] = []
    for number, tool in enumerate(choice["tools"]):
        is_server = isinstance(tool, dict) and tool.get("type") == KIND
        tools += fields.within(f"tools[{number}]", lambda it: _functions_of(it, toolset), tool) if is_server else [tool]
    return {**choice, "tools": tools}


def open_choice(choice: Any) -> Any:
    """Return the choice of a later turn: as the model likes, where the first was made to call something."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return choice if choice in (None, "none") else "auto"


def _functions_of(choice: Record, toolset: Toolset) -> list[Record]:
    label = required(choice, "server_label", filled_string)
    name = optional(choice, "name", filled_string)
    offered = [one for one in toolset.of(label) if name in (None, one.tool.name)]
    if not offered:
        raise Malformed("names no tool that is offered", "server_label" if name is None else "name")
    return [{"type": "function", "name": one.function} for one in offered]


def _reader(place: str) -> Callable[[Any], WantedServer]:
    def read(value: Any) -> WantedServer:
        wire = record(value)
        if wire.get("require_approval") != "never":
            raise Malformed("must be never: the gateway does not ask for approval", "require_approval")
        for name in wire.keys() - _READ:
            if wire[name] is not None and wire[name] not in _USUAL.get(name, ()):
                problem = _WHY_NOT.get(name, "is not honoured for tools that the gateway calls; leave it out")
                raise Malformed(problem, name[: fields.MAX_QUOTED_NAME])
        optional(wire, "server_description", fields.string)
        url = optional(wire, "server_url", filled_string)
        return WantedServer(
            label=required(wire, "server_label", _label),
            url=url,
            place=place,
            field="server_label" if url is None else "server_url",
            is_wanted=_allowed(wire),
        )

    return read


def _label(value: Any) -> str:
    if not _LABEL.fullmatch(fields.string(value)):
        raise Malformed("must be at most 64 letters, digits, hyphens and underscores")
    return str(value)


def _allowed(wire: Record) -> Callable[[Tool], bool]:
    """Return which tools are allowed: those that are named, those that only read, or all of them."""
    given = wire.get("allowed_tools")
    if given is None:
        return lambda tool: True
    if isinstance(given, list):
        named = frozenset(fields.within("allowed_tools", _names, given))
        return lambda tool: tool.name in named
    rule = fields.within("allowed_tools", _filter, given)
    return lambda tool: (rule[0] is None or tool.name in rule[0]) and (rule[1] is None or _only_reads(tool) == rule[1])


def _filter(value: Any) -> tuple[frozenset[str] | None, bool | None]:
    wire = record(value)
    named = optional(wire, "tool_names", _names)
    return None if named is None else frozenset(named), optional(wire, "read_only", boolean)


def _only_reads(tool: Tool) -> bool:
    return (tool.definition.get("annotations") or {}).get("readOnlyHint") is True


_names = list_of(filled_string, MAX_TOOLS)
