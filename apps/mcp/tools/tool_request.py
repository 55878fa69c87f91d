"""Tool request: the model request of a tool, in the form of a client's HTTP request; and pictures in its result.

It passes the pipeline like any other request of its API key, with the same limits, rules, guardrails, billing and log.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.rest.routes import route_table
from apps.mcp.protocol.toolbox import Caller

# Source of tool requests in the log, unless the client names another.
_SOURCE: Final = "mcp"


class ToolRequest(ClientRequest):
    """A request that the gateway makes to itself for a tool call; `path` is the API path of the request."""

    def __init__(self, caller: Caller, path: str, wire: dict[str, Any], cancelled: CancelSwitch) -> None:
        self._body = msgspec.json.encode(wire)
        environ: dict[str, Any] = {
            f"HTTP_{name.upper().replace('-', '_')}": value for name, value in caller.headers.items()
        }
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_LENGTH": str(len(self._body))}
        super().__init__(environ, route_table().exact["POST", path])
        self._key, self._cancelled = caller.token, cancelled

    @property
    def presented_key(self) -> str:
        """An internal token for the caller's API key."""
        return self._key

    @property
    def source(self) -> str | None:
        """The source recorded in the log."""
        return super().source or _SOURCE

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the signal that ends the request: the call's cancellation."""
        return self._cancelled


_UNKNOWN: Final = "image/png"


def picture_block(url: str) -> dict[str, Any]:
    """Return the block of content for a picture, a `data:` or an `https:` URL."""
    if not url.startswith("data:"):
        return {"type": "resource_link", "uri": url, "name": "image"}
    head, _, data = url.removeprefix("data:").partition(",")
    return {"type": "image", "data": data, "mimeType": head.partition(";")[0] or _UNKNOWN}
