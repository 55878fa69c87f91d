"""Methods common to both eras of the protocol, and the server's name, version and capabilities."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings

from apps.mcp.protocol import jsonrpc
from apps.mcp.protocol.jsonrpc import RpcError, RpcRequest
from apps.mcp.protocol.toolbox import Caller, Toolbox

# The server's capabilities; it does not notify of changed lists.
CAPABILITIES: Final[dict[str, Any]] = {"tools": {"listChanged": False}}


def server_info() -> dict[str, str]:
    """Return the server's name and version."""
    return {"name": "model-gateway", "title": "Model gateway", "version": settings.VERSION}


def list_tools(toolbox: Toolbox, caller: Caller, request: RpcRequest) -> dict[str, Any]:
    """Return the result of `tools/list`: one page. Raises RpcError for a cursor, because none is issued; ApiError."""
    if request.params.get("cursor") is not None:
        raise RpcError(jsonrpc.INVALID_PARAMS, "cursor: there is only one page", status=400)
    return {"tools": toolbox.list_tools(caller)}


def no_method(request: RpcRequest, status: int) -> RpcError:
    """Return the error for an unsupported method."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {request.method}", status=status)
