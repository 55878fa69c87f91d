"""Toolbox: what an endpoint of the protocol offers its callers. The interface between the protocol and its tools.

Knows callers, calls and results. Must never know HTTP, sessions or streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from apps.gateway.access.policy import Policy
from apps.responses.cancel_switch import CancelSwitch

# Characters of a tool's name that is looked for.
MOST_NAME: Final = 256


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: an API key, by itself or by an access token that was granted for it."""

    # What `find_policy` takes: a client's own token, or what stands for a key in this process. Never logged or stored.
    token: str
    # What the key may do, as of this request.
    policy: Policy
    # What a session belongs to: the key, or the grant. No other credential may use it.
    binding: str
    # Who consented to the grant; None for an API key.
    user_id: Any = None
    # The headers of the HTTP request that mean something to a request to a model (tags, its id, where it comes from).
    headers: Mapping[str, str] = {}


class Progress(Protocol):
    """Tells a caller how far its call has come."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell it; `progress` grows with every call, what does not is left out."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers: blocks of content as the protocol writes them, and the same as one value."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    # What stands beside them (`_meta`).
    meta: dict[str, Any] | None = None

    def wire(self) -> dict[str, Any]:
        """Return it as the protocol writes it."""
        wire: dict[str, Any] = {"content": self.content, "isError": self.is_error}
        if self.structured is not None:
            wire["structuredContent"] = self.structured
        if self.meta is not None:
            wire["_meta"] = self.meta
        return wire


class UnknownTool(Exception):
    """There is no tool of this name for this caller."""


class Toolbox(Protocol):
    """The tools of one endpoint."""

    # Where sessions are used that were opened there, and nowhere else: `mcp`, `mcp/<server>`.
    name: str
    # For the model that uses the tools.
    instructions: str

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools, as `tools/list` writes them, always in the same order. Raises ApiError."""

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool and return what it answers. `progress` is None where nobody wants to hear of it.

        `cancelled` ends each wait that lies in its `raise_while_waiting()`, with ClientGone. Raises UnknownTool,
        ApiError (which the caller is told as a result that is an error), and ClientGone once it is cancelled.
        """


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}
