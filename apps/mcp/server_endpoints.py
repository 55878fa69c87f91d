"""`/mcp/{server}` and `/mcp/all`: the MCP servers that an organization registered, through the gateway."""

from __future__ import annotations

from typing import Final

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.tool_calls import listings
from apps.gateway.tool_calls.caller import caller_of
from apps.kernel.errors import NotFound
from apps.mcp.callers import authenticate
from apps.mcp.protocol.endpoint import McpEndpoint
from apps.mcp.protocol.in_session import SESSION_HEADER
from apps.mcp.protocol.toolbox import Caller, Toolbox
from apps.mcp.server_tools import AllServerTools, ServerTools
from apps.mcp_servers.access import NO_SERVER
from apps.mcp_servers.tool_names import ALL, SERVER_NAME
from apps.oauth.resources import TOOLS


def _find_toolbox(request: ClientRequest, caller: Caller) -> Toolbox:
    """Return the tools at the address. Raises NotFound for a server that the caller may not use; InvalidRequest."""
    session = request.header(SESSION_HEADER)
    # Sessions of different credentials are distinct.
    scope = f"{caller.binding}\n{session}" if session else ""
    tool_caller = caller_of(request, caller.token, scope)
    name = request.parameters["server"]
    if name == ALL:
        return AllServerTools(tool_caller)
    return ServerTools(listings.find_server(caller.policy, name), tool_caller)


def _authenticate(request: ClientRequest) -> Caller:
    """Return the caller; an access token must be for this address. Raises ApiError."""
    name = request.parameters["server"]
    if not SERVER_NAME.fullmatch(name):
        # The name is written into a header below.
        raise NotFound(NO_SERVER)
    return authenticate(request, f"/mcp/{name}", TOOLS)


_ENDPOINT: Final = McpEndpoint(_authenticate, _find_toolbox)


def post_to_server(request: ClientRequest) -> ClientResponse:
    """Answer a protocol message."""
    return _ENDPOINT.post(request)


def resume_stream_of_server(request: ClientRequest) -> ClientResponse:
    """Send the rest of a stream."""
    return _ENDPOINT.get(request)


def end_session_of_server(request: ClientRequest) -> ClientResponse:
    """End a session."""
    return _ENDPOINT.delete(request)
