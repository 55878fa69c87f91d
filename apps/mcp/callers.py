"""Callers of MCP endpoints: who presents a credential, and what may be done with it.

Knows credentials. Must never log or keep one.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.access.policy import find_current_policy
from apps.gateway.client.http_request import ClientRequest
from apps.mcp.protocol.toolbox import Caller

# What of a call's HTTP request holds for the requests to models that it makes.
_KEPT: Final = ("x-request-id", "x-source", "x-no-fallback", "x-strict", "x-session-id")


def authenticate(request: ClientRequest) -> Caller:
    """Return who calls. Raises Unauthenticated, Gone, Overloaded."""
    token = request.presented_key
    policy = find_current_policy(token)
    return Caller(token=token, policy=policy, binding=f"key:{policy.api_key_id}", headers=_kept_headers(request))


def _kept_headers(request: ClientRequest) -> dict[str, str]:
    tags = {f"x-gateway-{name}": value for name, value in (request.custom_headers or {}).items()}
    return {**request.headers(*_KEPT), "x-request-id": request.request_id, **tags}
