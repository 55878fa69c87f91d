"""Anthropic Messages: reads which MCP servers a request names, with which of their tools; refusals name the field.

Both forms are read: sets of tools among `tools`, and, of the first preview, `tool_configuration` with the server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Opaque, OpaqueTool
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    one_of,
    optional,
    required,
)
from apps.gateway.server_tools.messages_history import OURS
from apps.gateway.server_tools.toolset import MAX_SERVERS, WantedServer
from apps.mcp_servers.upstream.tools import MAX_TOOLS, Tool

TOOLSET: Final = "mcp_toolset"
# The field that names servers, and what the betas that switch it on begin with.
SERVERS, BETA = "mcp_servers", "mcp-client-"
_NOT_SENT: Final = "the server is sent the credentials that it was registered with; leave it out"
_IsWanted = Callable[[str], bool]


class _Server(msgspec.Struct, frozen=True):
    """A server as the field names it."""

    name: str
    url: str | None
    is_wanted: _IsWanted


def speaks_of_servers(chat: Chat) -> bool:
    """Return whether a request names servers, or brings back calls of their tools."""
    if chat.extra is not None and SERVERS in chat.extra:
        return True
    if any(isinstance(tool, OpaqueTool) and _is_toolset(tool.data) for tool in chat.tools or ()):
        return True
    return Opaque in chat.kinds and any(
        isinstance(part, Opaque) and isinstance(part.data, dict) and part.data.get("type") in OURS
        for message in chat.messages
        for part in message.parts
    )


def read_servers(wire: Record) -> list[WantedServer]:
    """Return the servers that a request names. Raises InvalidRequest."""
    try:
        servers = fields.within(SERVERS, list_of(_server, MAX_SERVERS), wire.get(SERVERS) or [])
        sets: dict[str, _IsWanted] = {}
        for number, tool in enumerate(wire.get("tools") or ()):
            if _is_toolset(tool):
                name, is_wanted = fields.within(f"tools[{number}]", _toolset, tool)
                if name in sets or all(server.name != name for server in servers):
                    raise Malformed("must name one of mcp_servers, once", f"tools[{number}].mcp_server_name")
                sets[name] = is_wanted
        for number, server in enumerate(servers):
            if sets and server.name not in sets:
                raise Malformed("is named by no mcp_toolset in tools", f"{SERVERS}[{number}].name")
    except Malformed as refusal:
        raise refusal.as_error() from None
    return [_wanted(number, server, sets.get(server.name)) for number, server in enumerate(servers)]


def _wanted(number: int, server: _Server, in_set: _IsWanted | None) -> WantedServer:
    def is_wanted(tool: Tool) -> bool:
        return server.is_wanted(tool.name) and (in_set is None or in_set(tool.name))

    return WantedServer(
        label=server.name,
        url=server.url,
        place=f"{SERVERS}[{number}]",
        field="name" if server.url is None else "url",
        is_wanted=is_wanted,
    )


def is_named(tool: Any, label: str) -> bool:
    """Return whether a tool of a request is the set of this server's tools."""
    return _is_toolset(tool) and bool(tool.get("mcp_server_name") == label)


def _is_toolset(tool: Any) -> bool:
    return isinstance(tool, dict) and tool.get("type") == TOOLSET


def _server(value: Any) -> _Server:
    wire = _only(value, "type", "url", "name", "authorization_token", "tool_configuration")
    required(wire, "type", one_of("url"))
    if wire.get("authorization_token") is not None:
        raise Malformed(_NOT_SENT, "authorization_token")
    return _Server(
        required(wire, "name", filled_string),
        optional(wire, "url", filled_string),
        optional(wire, "tool_configuration", _configuration) or _any,
    )


def _configuration(value: Any) -> _IsWanted:
    wire = _only(value, "enabled", "allowed_tools")
    enabled, allowed = optional(wire, "enabled", boolean), optional(wire, "allowed_tools", _names)
    return lambda name: enabled is not False and (allowed is None or name in allowed)


def _toolset(value: Any) -> tuple[str, _IsWanted]:
    wire = _only(value, "type", "mcp_server_name", "default_config", "configs", "cache_control")
    by_default = optional(wire, "default_config", _is_enabled)
    configs = optional(wire, "configs", fields.record) or {}
    single = fields.within("configs", _each_enabled, configs)

    def is_wanted(name: str) -> bool:
        said = single.get(name)
        return (by_default is not False) if said is None else said

    return required(wire, "mcp_server_name", filled_string), is_wanted


def _is_enabled(value: Any) -> bool | None:
    wire = _only(value, "enabled", "defer_loading")
    if optional(wire, "defer_loading", boolean):
        raise Malformed("is not honoured for tools that the gateway calls; leave it out", "defer_loading")
    return optional(wire, "enabled", boolean)


def _each_enabled(configs: Record) -> dict[str, bool | None]:
    return {name: required(configs, name, _is_enabled) for name in configs}


def _only(value: Any, *names: str) -> Record:
    wire = fields.record(value)
    for name, said in wire.items():
        if name not in names and said is not None:
            raise Malformed("is not honoured for tools that the gateway calls", name[: fields.MAX_QUOTED_NAME])
    return wire


def _any(name: str) -> bool:
    return True


_names = list_of(filled_string, MAX_TOOLS)
