"""Methods that both eras of the protocol have, and how a server presents itself.

Knows results. Must never know HTTP or sessions.
"""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings

from apps.mcp.protocol import jsonrpc
from apps.mcp.protocol.jsonrpc import RpcError, RpcRequest
from apps.mcp.protocol.toolbox import Caller, Toolbox

# What the server can do; its lists change without its telling.
CAPABILITIES: Final[dict[str, Any]] = {"tools": {"listChanged": False}}


def server_info() -> dict[str, str]:
    """Return what the server says that it is."""
    return {"name": "model-gateway", "title": "Model gateway", "version": settings.VERSION}


def list_tools(toolbox: Toolbox, caller: Caller, request: RpcRequest) -> dict[str, Any]:
    """Return the result of `tools/list`: one page. Raises RpcError for a cursor, for none is ever given; ApiError."""
    if request.params.get("cursor") is not None:
        raise RpcError(jsonrpc.INVALID_PARAMS, "cursor: there is one page", status=400)
    return {"tools": toolbox.list_tools(caller)}


def no_method(request: RpcRequest, status: int) -> RpcError:
    """Return the error of a method that is not served."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {request.method}", status=status)
