"""The era with sessions (2025-06-18 and 2025-11-25): a client opens one, and can resume its calls' streams.

A client that disconnects has cancelled nothing: the call continues, and its stream can be resumed until a few minutes
after its end.
"""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import RedisError

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.kernel.errors import Overloaded
from apps.kernel.valkey.cache_store import CacheShare
from apps.mcp.protocol import jsonrpc, revisions, stream_log
from apps.mcp.protocol.answers import resumed_answer, streamed_answer, whole, whole_answer, without_body
from apps.mcp.protocol.calls import Call, cancel_here
from apps.mcp.protocol.jsonrpc import Message, RpcError, RpcNotification, RpcRequest
from apps.mcp.protocol.sessions import Session, end_session, find_session, open_session
from apps.mcp.protocol.toolbox import CAPABILITIES, Caller, Toolbox, list_tools, no_method, server_info

SESSION_HEADER: Final = "mcp-session-id"


def answer(
    request: ClientRequest, caller: Caller, toolbox: Toolbox, message: Message, *, streams: bool
) -> ClientResponse:
    """Answer a message. Raises RpcError, ApiError."""
    if isinstance(message, RpcRequest) and message.method == "initialize":
        return _initialize(caller, toolbox, message)
    session = _access_session(request, caller, toolbox)
    if not isinstance(message, RpcRequest):
        if isinstance(message, RpcNotification) and message.method == "notifications/cancelled":
            _cancel(session, message)
        return without_body(202)
    match message.method:
        case "ping":
            return whole(jsonrpc.write_result(message.id, {}))
        case "tools/list":
            return whole(jsonrpc.write_result(message.id, list_tools(toolbox, caller, message)))
        case "tools/call":
            kept = stream_log.StreamLog(session, _share_of(caller), message.id) if streams else None
            call = Call(toolbox, caller, message, {}, kept)
            call.start()
            watch = request.watch_disconnect()
            if not streams:
                return whole_answer(call, watch)
            return streamed_answer(call, watch, is_primed=revisions.is_primed(session.revision))
    raise no_method(message, status=200)


def resume(request: ClientRequest, caller: Caller, toolbox: Toolbox, event_id: str) -> ClientResponse:
    """Return the rest of a stream. Raises RpcError, ApiError."""
    session = _access_session(request, caller, toolbox)
    position = stream_log.read_position(event_id)
    try:
        request_id = None if position is None else stream_log.find_request(session, _share_of(caller), position)
    except RedisError as error:
        raise Overloaded("Streams cannot be read right now; try again shortly") from error
    if position is None or request_id is None:
        words = f"Last-Event-ID is from another session, or from a stream that ended more than {stream_log.LASTS} s ago"
        raise RpcError(jsonrpc.INVALID_REQUEST, words, status=400)
    return resumed_answer(session, _share_of(caller), request_id, position)


def end(request: ClientRequest, caller: Caller, toolbox: Toolbox) -> ClientResponse:
    """End a session and all of its calls. Raises RpcError, ApiError."""
    session = _access_session(request, caller, toolbox)
    end_session(session)
    # Other workers notice that the session is over.
    cancel_here(session.digest)
    return without_body(200)


def _initialize(caller: Caller, toolbox: Toolbox, message: RpcRequest) -> ClientResponse:
    asked = message.params.get("protocolVersion")
    if not isinstance(asked, str):
        raise RpcError(jsonrpc.INVALID_PARAMS, "protocolVersion: Required, a string", status=400)
    revision = revisions.negotiated(asked)
    session_id = open_session(caller.binding, toolbox.name, revision)
    result: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": CAPABILITIES,
        "serverInfo": server_info(),
    }
    if toolbox.instructions:
        result["instructions"] = toolbox.instructions
    return whole(jsonrpc.write_result(message.id, result), headers=[("Mcp-Session-Id", session_id)])


def _share_of(caller: Caller) -> CacheShare:
    return CacheShare.of(caller.policy.organization_id, caller.policy.plan)


def _access_session(request: ClientRequest, caller: Caller, toolbox: Toolbox) -> Session:
    """Return the session of a request. Raises RpcError: 400 without one, 404 for another caller's."""
    session_id = request.header(SESSION_HEADER)
    if session_id is None:
        words = "Mcp-Session-Id: Required; initialize opens a session; requests of 2026-07-28 need none"
        raise RpcError(jsonrpc.INVALID_REQUEST, words, status=400)
    session = find_session(session_id, caller.binding, toolbox.name)
    if session is None:
        raise RpcError(jsonrpc.INVALID_REQUEST, "There is no such session; initialize opens one", status=404)
    stated = request.header(revisions.HEADER)
    if stated is not None and stated != session.revision:
        words = f"MCP-Protocol-Version must be {session.revision}, which this session was opened with"
        raise RpcError(jsonrpc.INVALID_REQUEST, words, status=400)
    return session


def _cancel(session: Session, message: RpcNotification) -> None:
    """Cancel a call in any worker; a call that already ended is ignored."""
    request_id = message.params.get("requestId")
    if not jsonrpc.is_id(request_id):
        return
    assert request_id is not None  # noqa: S101 - it is an id
    cancel_here(session.digest, request_id)
    try:
        stream_log.ask_to_cancel(session, request_id)
    except RedisError as error:
        raise Overloaded("The call may go on at another worker; try again shortly") from error
