"""`/mcp`: the gateway's own tools, for programs that speak the Model Context Protocol."""

from __future__ import annotations

from typing import Final

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.mcp.callers import authenticate
from apps.mcp.protocol.endpoint import McpEndpoint
from apps.mcp.tools.box import GatewayTools

_TOOLS: Final = GatewayTools()
_ENDPOINT: Final = McpEndpoint(authenticate, lambda request, caller: _TOOLS)


def post_message(request: ClientRequest) -> ClientResponse:
    """Answer a message of the protocol."""
    return _ENDPOINT.post(request)


def resume_stream(request: ClientRequest) -> ClientResponse:
    """Send the rest of a stream."""
    return _ENDPOINT.get(request)


def end_session(request: ClientRequest) -> ClientResponse:
    """End a session."""
    return _ENDPOINT.delete(request)
