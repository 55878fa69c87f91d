"""Toolbox: the interface between the protocol and the tools of an endpoint; methods common to both eras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from django.conf import settings

from apps.gateway.access.policy import Policy
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.mcp.protocol import jsonrpc
from apps.mcp.protocol.jsonrpc import RpcError, RpcRequest

# Characters of a tool's name.
MAX_NAME: Final = 256


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: an API key, presented directly or by an access token that was granted for it."""

    # Argument of `find_policy`: the client's token, or an internal token for a key. Never logged or stored.
    token: str
    # The key's policy at the time of this request.
    policy: Policy
    # The owner of sessions: the key or the grant. No other credential may use them.
    binding: str
    # The user who consented to the grant; None for an API key.
    user_id: Any = None
    # Headers of the HTTP request that apply to model requests (tags, request id, source).
    headers: Mapping[str, str] = {}


class Progress(Protocol):
    """Reports the progress of a call."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report; `progress` grows with every call, other values are dropped."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool: content blocks in the protocol's format, and the same as structured data."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    # The `_meta` beside them.
    meta: dict[str, Any] | None = None

    def wire(self) -> dict[str, Any]:
        """Return the result in the protocol's format."""
        wire: dict[str, Any] = {"content": self.content, "isError": self.is_error}
        if self.structured is not None:
            wire["structuredContent"] = self.structured
        if self.meta is not None:
            wire["_meta"] = self.meta
        return wire


class UnknownTool(Exception):
    """The caller has no tool with this name."""


class Toolbox(Protocol):
    """The tools of one endpoint."""

    # Sessions are valid only for the toolbox that opened them: `mcp`, `mcp/<server>`.
    name: str
    # For the model.
    instructions: str

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools in the format of `tools/list`, always in the same order. Raises ApiError."""

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool and return its result. `progress` is None if the client wants none.

        `cancelled` ends each wait inside its `raise_while_waiting()` with ClientGone. Raises UnknownTool, ApiError
        (which becomes an error result for the caller), and ClientGone after cancellation.
        """


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


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
