"""Toolboxes of registered MCP servers: the tools of one, or of all that a caller may use, called through the gateway.

A toolbox is created for each HTTP request.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.gateway.tool_calls import listings
from apps.gateway.tool_calls.call_tool import call_tool
from apps.gateway.tool_calls.caller import ToolCaller
from apps.kernel.errors import InvalidRequest, NotFound
from apps.mcp.protocol.toolbox import MAX_NAME, Caller, CallResult, Progress, UnknownTool
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_names import ALL, joined_names, server_of
from apps.responses.background_state import CancelSwitch

# Bytes of all definitions in a joined list.
MAX_JOINED: Final = 8 * 1024 * 1024


class ServerTools:
    """The tools of one server, under their own names."""

    instructions = ""

    def __init__(self, server: McpServer, tool_caller: ToolCaller) -> None:
        self.name = f"mcp/{server.name}"
        self._server, self._tool_caller = server, tool_caller

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the server's allowed tools. Raises McpServerFailed, Overloaded."""
        listing = listings.list_tools(caller.policy, self._server, self._tool_caller)
        return [tool.definition for tool in listing.tools.values()]

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        return _call(self._tool_caller, self._server.name, name, arguments, progress, cancelled, joined=False)


class AllServerTools:
    """The tools of all servers that a caller may use, named by server and tool."""

    name = f"mcp/{ALL}"
    instructions = "Tools of several servers; the part of a name before the first two underscores is the server."

    def __init__(self, tool_caller: ToolCaller) -> None:
        self._tool_caller = tool_caller

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools by server, without those of servers that fail. Raises ApiError."""
        servers = listings.find_servers(caller.policy)
        found = listings.list_all(caller.policy, servers, self._tool_caller)
        tools = [
            {**found[server].tools[own].definition, "name": name}
            for server in sorted(found)
            for name, own in joined_names(server, found[server].tools).items()
        ]
        if len(msgspec.json.encode(tools)) > MAX_JOINED:
            raise InvalidRequest(
                f"The definitions of all tools are larger than {MAX_JOINED} bytes together: use the servers one by one,"
                " or allow fewer of their tools",
                code="too_many_tools",
            )
        return tools

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        return _call(self._tool_caller, server_of(name), name, arguments, progress, cancelled, joined=True)


def _call(
    tool_caller: ToolCaller,
    server: str,
    name: str,
    arguments: dict[str, Any],
    progress: Progress | None,
    cancelled: CancelSwitch,
    *,
    joined: bool,
) -> CallResult:
    if len(name) > MAX_NAME:
        raise UnknownTool
    try:
        answer = call_tool(tool_caller, server, name, arguments, progress, cancelled, joined=joined)
    except NotFound as error:
        raise UnknownTool from error
    return CallResult(content=answer.content, structured=answer.structured, is_error=answer.is_error)
