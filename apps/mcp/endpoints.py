"""`/mcp`: the gateway's own tools; `/mcp/{server}` and `/mcp/all`: MCP servers that an organization registered.

Callers have an API key, or an access token, which belongs to an API key and works only for the resource that it was
granted for. Credentials are never logged or stored.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from apps.gateway.access.policy import find_current_policy, token_of_key
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.tool_calls import ToolCaller, caller_of, listings
from apps.gateway.tool_calls.call_tool import call_tool
from apps.kernel.errors import ApiError, Forbidden, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.postgres import database
from apps.keys.secrets import is_api_key
from apps.mcp.protocol.calls import MAX_NAME, Caller, CallResult, Progress, Toolbox, UnknownTool
from apps.mcp.protocol.endpoint import SESSION_HEADER, McpEndpoint
from apps.mcp.tools import GatewayTools
from apps.mcp_servers.access import NO_SERVER
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_pins import ALL, SERVER_NAME, joined_names, server_of
from apps.oauth.access import authenticate_access_token
from apps.oauth.resources import MODELS, TOOLS, resource_of, www_authenticate

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


# Bytes of all definitions in a joined list.
MAX_JOINED: Final = 8 * 1024 * 1024


class ServerTools:
    """The tools of one server, under their own names."""

    instructions = ""

    def __init__(self, server: McpServer, tool_caller: ToolCaller) -> None:
        self.name = f"mcp/{server.name}"
        self._server, self._tool_caller = server, tool_caller

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the server's allowed tools. Raises McpServerFailed, Overloaded."""
        listing = listings.list_tools(caller.policy, self._server, self._tool_caller)
        return [tool.definition for tool in listing.tools.values()]

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        return _call(self._tool_caller, self._server.name, name, arguments, progress, cancelled, joined=False)


class AllServerTools:
    """The tools of all servers that a caller may use, named by server and tool."""

    name = f"mcp/{ALL}"
    instructions = "Tools of several servers; the part of a name before the first two underscores is the server."

    def __init__(self, tool_caller: ToolCaller) -> None:
        self._tool_caller = tool_caller

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools by server, without those of servers that fail. Raises ApiError."""
        servers = listings.find_servers(caller.policy)
        found = listings.list_all(caller.policy, servers, self._tool_caller)
        tools = [
            {**found[server].tools[own].definition, "name": name}
            for server in sorted(found)
            for name, own in joined_names(server, found[server].tools).items()
        ]
        if len(msgspec.json.encode(tools)) > MAX_JOINED:
            raise InvalidRequest(
                f"The definitions of all tools are larger than {MAX_JOINED} bytes together: use the servers one by one,"
                " or allow fewer of their tools",
                code="too_many_tools",
            )
        return tools

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        return _call(self._tool_caller, server_of(name), name, arguments, progress, cancelled, joined=True)


def _call(
    tool_caller: ToolCaller,
    server: str,
    name: str,
    arguments: dict[str, Any],
    progress: Progress | None,
    cancelled: CancelSwitch,
    *,
    joined: bool,
) -> CallResult:
    if len(name) > MAX_NAME:
        raise UnknownTool
    try:
        answer = call_tool(tool_caller, server, name, arguments, progress, cancelled, joined=joined)
    except NotFound as error:
        raise UnknownTool from error
    return CallResult(content=answer.content, structured=answer.structured, is_error=answer.is_error)


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


_SERVERS: Final = McpEndpoint(_authenticate, _find_toolbox)


def post_to_server(request: ClientRequest) -> ClientResponse:
    """Answer a protocol message."""
    return _SERVERS.post(request)


def resume_stream_of_server(request: ClientRequest) -> ClientResponse:
    """Send the rest of a stream."""
    return _SERVERS.get(request)


def end_session_of_server(request: ClientRequest) -> ClientResponse:
    """End a session."""
    return _SERVERS.delete(request)
