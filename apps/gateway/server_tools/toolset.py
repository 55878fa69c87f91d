"""Toolset: a request's tools of registered MCP servers, offered to its model as functions under names of its own.

It maps each function to its server's tool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from apps.gateway.access.policy import Policy
from apps.gateway.tool_calls import listings
from apps.gateway.tool_calls.caller import ToolCaller
from apps.kernel.errors import InvalidRequest
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_names import joined_names
from apps.mcp_servers.upstream.tools import Tool

# Servers in one request.
MAX_SERVERS: Final = 20


class WantedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as a request names it: by its address, else by the name that it is registered under.

    `label` is what the request calls it, `place` and `field` are where it does.
    """

    label: str
    url: str | None
    place: str
    field: str
    is_wanted: Callable[[Tool], bool]


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is offered: `function` is what the model calls it, `label` what the request calls its server."""

    function: str
    label: str
    server: str
    tool: Tool


class Toolset:
    """All tools that a request offers, by function and by label."""

    def __init__(self, offered: Sequence[OfferedTool]) -> None:
        self.by_function = {one.function: one for one in offered}

    @property
    def stated_effects(self) -> dict[str, bool]:
        """Whether each function has effects, where its tool's annotations say so."""
        stated = {name: one.tool.has_effects for name, one in self.by_function.items()}
        return {name: has_effects for name, has_effects in stated.items() if has_effects is not None}

    def of(self, label: str) -> list[OfferedTool]:
        """Return the tools of the server that the request calls so."""
        return [one for one in self.by_function.values() if one.label == label]

    def function_of(self, label: str, tool: str) -> str | None:
        """Return the function that stands for a server's tool; None where it is not offered."""
        return next((one.function for one in self.of(label) if one.tool.name == tool), None)


def find_toolset(policy: Policy, caller: ToolCaller, wanted: Sequence[WantedServer], taken: frozenset[str]) -> Toolset:
    """Return the tools of the servers that a request names; `taken` are the names of its own tools.

    Raises InvalidRequest for a server that the key may not use, or that is named twice, and for a name that two tools
    would have; McpServerFailed, Overloaded, DatabaseError.
    """
    servers = listings.find_servers(policy)
    chosen = [(one, _server_of(one, servers)) for one in wanted]
    found: list[OfferedTool] = []
    labels: set[str] = set()
    names: set[str] = set()
    for one, server in chosen:
        if one.label in labels or server.name in names:
            raise _refused(one, "names a server that is named before")
        labels.add(one.label)
        names.add(server.name)
    for one, server in chosen:
        listing = listings.list_tools(policy, server, caller)
        for function, own in joined_names(server.name, listing.tools).items():
            if not one.is_wanted(listing.tools[own]):
                continue
            if function in taken:
                raise _refused(one, f"has a tool that would be called {function}, as one of the request's own tools is")
            found.append(OfferedTool(function=function, label=one.label, server=server.name, tool=listing.tools[own]))
    return Toolset(found)


def _server_of(wanted: WantedServer, servers: Sequence[McpServer]) -> McpServer:
    """Return the registered server that a request means. Raises InvalidRequest."""
    if wanted.url is None:
        same = [server for server in servers if server.name == wanted.label]
    else:
        address = wanted.url.rstrip("/")
        same = [server for server in servers if server.url.rstrip("/") == address]
    if not same:
        raise _refused(
            wanted, "is none of the MCP servers that this key may use; an admin registers them", "unknown_mcp_server"
        )
    return next((server for server in same if server.name == wanted.label), same[0])


def _refused(wanted: WantedServer, problem: str, code: str = "invalid_parameters") -> InvalidRequest:
    place = f"{wanted.place}.{wanted.field}"
    return InvalidRequest(f"{place}: {problem}", code=code, param=place)
