"""Callers of MCP endpoints: authenticates an API key or an access token.

An access token belongs to an API key, and works only for the resource that it was granted for. Credentials are never
logged or stored.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from apps.gateway.access.policy import find_current_policy, token_of_key
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.errors import ApiError, Forbidden, Unauthenticated
from apps.kernel.postgres import database
from apps.keys.secrets import is_api_key
from apps.mcp.protocol.toolbox import Caller
from apps.oauth.access import authenticate_access_token
from apps.oauth.resources import MODELS, resource_of, www_authenticate

# Headers of the HTTP request that are passed on to the model requests of a call.
_KEPT: Final = ("x-request-id", "x-source", "x-no-fallback", "x-strict", "x-session-id")
_CHALLENGE: Final = "WWW-Authenticate"


def authenticate(request: ClientRequest, path: str = "/mcp", scope: str = MODELS) -> Caller:
    """Return the caller of the resource at a path; an access token needs the scope, an API key does not.

    Raises Unauthenticated and Forbidden, with the header that leads to the sign-in; Gone, Overloaded.
    """
    is_presented = any(request.headers("authorization", "x-api-key"))
    try:
        return _identify(request, path, scope)
    except Unauthenticated as error:
        raise _leading(error, www_authenticate(path, error="invalid_token" if is_presented else None)) from None


def _identify(request: ClientRequest, path: str, scope: str) -> Caller:
    token = request.presented_key
    kept = _kept_headers(request)
    if is_api_key(token):
        policy = find_current_policy(token)
        return Caller(token=token, policy=policy, binding=f"key:{policy.api_key_id}", headers=kept)
    grant = database.read(partial(authenticate_access_token, token, resource=resource_of(path)))
    if grant is None:
        raise Unauthenticated("This access token is unknown, over, or for another resource")
    if scope not in grant.scopes:
        challenge = www_authenticate(path, error="insufficient_scope", scope=scope)
        raise _leading(Forbidden(f"This access token lacks the scope {scope}", code="insufficient_scope"), challenge)
    token = token_of_key(grant.api_key_id)
    policy = find_current_policy(token)
    return Caller(
        token=token,
        policy=policy,
        # Tokens are renewed, so a session belongs to the consent's API key, which has no other use.
        binding=f"grant:{policy.api_key_id}",
        user_id=grant.user_id,
        headers=kept,
    )


def _leading(error: ApiError, challenge: str) -> ApiError:
    """Return the error with the header that tells a client how to get an access token."""
    error.headers = [*error.headers, (_CHALLENGE, challenge)]
    return error


def _kept_headers(request: ClientRequest) -> dict[str, str]:
    tags = {f"x-gateway-{name}": value for name, value in (request.custom_headers or {}).items()}
    return {**request.headers(*_KEPT), "x-request-id": request.request_id, **tags}
