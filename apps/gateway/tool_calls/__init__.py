"""Calls of tools at MCP servers that an organization registered: listings, guardrails and records.

Here is the caller: whose API key asks, in which request, and what of it goes on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import msgspec

from apps.gateway.client.http_request import ClientRequest, append_own_token, read_cdn_loop
from apps.gateway.routing.request_profile import logged_session

# The family of routes that calls are counted with for rate limits.
RATE_FAMILY: Final = "mcp"


class Interruption(Protocol):
    """Ends the wait for a tool: the client hung up, or cancelled its request."""

    def raise_while_waiting(self) -> AbstractContextManager[Any]:
        """Within this block a wait ends with ClientGone."""


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller of tools. Its token decides every permission, and never leaves the gateway."""

    token: str
    request_id: str
    # The header `CDN-Loop` for the servers.
    cdn_loop: str
    source: str | None = None
    custom_headers: dict[str, str] | None = None
    # The client's session and program in the log.
    session_id: str | None = None
    user_agent: str | None = None
    # Whose sessions at servers are gone on with: a session of this caller's own, in words that no other caller's
    # have; empty where each call has one of its own.
    session_scope: str = ""


def caller_of(call: ClientRequest, token: str, session_scope: str = "") -> ToolCaller:
    """Return who makes an HTTP request. Raises InvalidRequest for one that has come through here before."""
    return ToolCaller(
        token=token,
        request_id=call.request_id,
        cdn_loop=append_own_token(read_cdn_loop(call)),
        source=call.source,
        custom_headers=call.custom_headers,
        session_id=logged_session(call),
        user_agent=call.user_agent,
        session_scope=session_scope,
    )
