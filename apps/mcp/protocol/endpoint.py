"""MCP endpoint: POST, GET and DELETE of one address, in both eras of the protocol.

It checks caller and origin, finds the tools, and passes the message to its era. With sessions (2025-06-18 and
2025-11-25), a client that disconnects has cancelled nothing: the call continues, and its stream can be resumed until a
few minutes after its end. From 2026-07-28 on, each request describes itself in its headers and in `_meta`. The headers
must agree with the body, because a proxy in front of the gateway may rely on them. Such a call ends when its client
leaves.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from math import ceil
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.gateway.access.policy import count_refusal
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.kernel.errors import ApiError, Forbidden, InternalError, Overloaded
from apps.kernel.valkey.cache_store import CacheShare
from apps.mcp.protocol import jsonrpc, sessions
from apps.mcp.protocol.answers import (
    EVENTS,
    JSON,
    failed,
    resumed_answer,
    streamed_answer,
    whole,
    whole_answer,
    without_body,
)
from apps.mcp.protocol.calls import CAPABILITIES, Call, Caller, Toolbox, cancel_here, list_tools, no_method, server_info
from apps.mcp.protocol.jsonrpc import Message, RpcError, RpcNotification, RpcReply, RpcRequest
from apps.mcp.protocol.sessions import Session, end_session, find_session, open_session

SESSION_HEADER: Final = "mcp-session-id"


def answer_in_session(
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
            kept = sessions.StreamLog(session, _share_of(caller), message.id) if streams else None
            call = Call(toolbox, caller, message, {}, kept)
            call.start()
            watch = request.watch_disconnect()
            if not streams:
                return whole_answer(call, watch)
            return streamed_answer(call, watch, is_primed=jsonrpc.is_primed(session.revision))
    raise no_method(message, status=200)


def resume(request: ClientRequest, caller: Caller, toolbox: Toolbox, event_id: str) -> ClientResponse:
    """Return the rest of a stream. Raises RpcError, ApiError."""
    session = _access_session(request, caller, toolbox)
    position = sessions.read_position(event_id)
    try:
        request_id = None if position is None else sessions.find_request(session, _share_of(caller), position)
    except RedisError as error:
        raise Overloaded("Streams cannot be read right now; try again shortly") from error
    if position is None or request_id is None:
        words = f"Last-Event-ID is from another session, or from a stream that ended more than {sessions.LASTS} s ago"
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
    revision = jsonrpc.negotiated(asked)
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
    stated = request.header(jsonrpc.HEADER)
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
        sessions.ask_to_cancel(session, request_id)
    except RedisError as error:
        raise Overloaded("The call may go on at another worker; try again shortly") from error


log = structlog.get_logger(__name__)

_ALL: Final = ("*/*", "")
# Names of this machine, which count as one origin.
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class McpEndpoint:
    """The functions of one address, for the route table."""

    def __init__(
        self,
        authenticate: Callable[[ClientRequest], Caller],
        find_toolbox: Callable[[ClientRequest, Caller], Toolbox],
    ) -> None:
        """Create the endpoint from the functions that authenticate a caller and find their tools (both raise
        ApiError)."""
        self._authenticate, self._find_toolbox = authenticate, find_toolbox

    def post(self, request: ClientRequest) -> ClientResponse:
        """Answer a message."""

        def answer(caller: Caller) -> ClientResponse:
            streams, plain = _accepts(request, EVENTS), _accepts(request, JSON) or _accepts_all(request)
            if not (streams or plain):
                raise RpcError(jsonrpc.INVALID_REQUEST, f"Accept must include {JSON} and {EVENTS}", status=406)
            toolbox = self._find_toolbox(request, caller)
            body, _ = read_body(request, caller.policy.organization_id)
            try:
                message = jsonrpc.read_message(body)
            except RpcError as error:
                return failed(jsonrpc.id_of(body), error)
            params = {} if isinstance(message, jsonrpc.RpcReply) else message.params
            is_stateless = jsonrpc.is_stateless(request.header(jsonrpc.HEADER), params)
            answer_message = _answer_stateless if is_stateless else answer_in_session
            try:
                return answer_message(request, caller, toolbox, message, streams=streams)
            except RpcError as error:
                return failed(message.id if isinstance(message, RpcRequest) else None, error)
            except ApiError as error:
                return _refused(request, error, message.id if isinstance(message, RpcRequest) else None)

        return self._answered(request, answer)

    def get(self, request: ClientRequest) -> ClientResponse:
        """Resume a stream. There are no other streams: the server sends no unsolicited messages."""

        def answer(caller: Caller) -> ClientResponse:
            event_id = request.header("last-event-id")
            if event_id is None or jsonrpc.is_stateless(request.header(jsonrpc.HEADER), {}):
                return _not_served("POST, DELETE")
            if not (_accepts(request, EVENTS) or _accepts_all(request)):
                raise RpcError(jsonrpc.INVALID_REQUEST, f"Accept must include {EVENTS}", status=406)
            return resume(request, caller, self._find_toolbox(request, caller), event_id)

        return self._answered(request, answer)

    def delete(self, request: ClientRequest) -> ClientResponse:
        """End a session."""

        def answer(caller: Caller) -> ClientResponse:
            if jsonrpc.is_stateless(request.header(jsonrpc.HEADER), {}):
                return _not_served("POST")
            return end(request, caller, self._find_toolbox(request, caller))

        return self._answered(request, answer)

    def _answered(self, request: ClientRequest, answer: Callable[[Caller], ClientResponse]) -> ClientResponse:
        """Authenticate and answer; every failure becomes a protocol error."""
        try:
            caller = self._authenticate(request)
            _check_origin(request, caller)
            response = answer(caller)
        except RpcError as error:
            response = failed(None, error)
        except ApiError as error:
            response = _refused(request, error)
        except DatabaseError as error:
            log.warning("mcp.without_database", error=type(error).__name__)
            words = "The gateway cannot reach its database right now; try again shortly"
            response = _refused(request, Overloaded(words))
        except Exception:
            log.exception("mcp.failed", request_id=request.request_id)
            response = _refused(request, InternalError("The gateway failed to answer this request"))
        finally:
            # Messages are small and have been read.
            request.release_bytes()
        response.headers.append(("x-request-id", request.request_id))
        return response


def _not_served(allowed: str) -> ClientResponse:
    error = RpcError(jsonrpc.INVALID_REQUEST, f"Only {allowed} is supported here", status=405)
    return failed(None, error, [("Allow", allowed)])


def _refused(request: ClientRequest, error: ApiError, request_id: jsonrpc.Id | None = None) -> ClientResponse:
    """Return an error of the gateway."""
    count_refusal(request, error)
    headers = [*error.headers]
    if error.status in {408, 413}:
        # Unread bytes of the body would be taken for the next request.
        headers.append(("Connection", "close"))
    if error.retry_after is not None:
        headers.append(("Retry-After", str(max(1, ceil(error.retry_after)))))
    code = jsonrpc.INVALID_REQUEST if error.status < 500 else jsonrpc.INTERNAL_ERROR
    data = {"status": error.status, "type": error.type, "code": error.code}
    return failed(request_id, RpcError(code, error.message, status=error.status, data=data), headers)


def _check_origin(request: ClientRequest, caller: Caller) -> None:
    """Refuse pages of origins that are not allowed, which may reach the gateway by another name (DNS rebinding).

    Raises Forbidden.
    """
    origin = request.header("origin")
    if origin is None or origin in caller.policy.allowed_origins:
        return
    if not caller.policy.allowed_origins and (settings.CORS_ORIGINS.admit(origin) or _is_own(origin)):
        return
    raise Forbidden("Pages of this origin may not call this: see CORS_ALLOWED_ORIGINS", code="origin_not_allowed")


def _is_own(origin: str) -> bool:
    """Return whether an origin is the gateway's own; on a local machine it has several names."""
    own = urlsplit(settings.PUBLIC_URL)
    try:
        asking = urlsplit(origin)
        same = (asking.scheme, asking.port) == (own.scheme, own.port)
    except ValueError:
        return False
    return same and (asking.hostname == own.hostname or {asking.hostname, own.hostname} <= _LOOPBACK)


def _accepts(request: ClientRequest, kind: str) -> bool:
    """Return whether a client accepts this content type."""
    return kind in _accepted(request)


def _accepts_all(request: ClientRequest) -> bool:
    return any(kind in _ALL or kind == "application/*" for kind in _accepted(request))


def _accepted(request: ClientRequest) -> list[str]:
    header = (request.header("accept") or "")[:2_000]
    return [part.partition(";")[0].strip().lower() for part in header.split(",")]


# Milliseconds for which a client may cache a list of tools, or the server's description.
_LIST_LASTS, _DISCOVERY_LASTS = 60_000, 3_600_000
# Encoding of header values that are not plain text.
_PACKED, _PACKED_END = "=?base64?", "?="
_MISMATCH: Final = "Header mismatch: %s"


def _answer_stateless(
    request: ClientRequest, caller: Caller, toolbox: Toolbox, message: Message, *, streams: bool
) -> ClientResponse:
    """Answer a message. Raises RpcError, ApiError."""
    if isinstance(message, RpcReply):
        raise RpcError(jsonrpc.INVALID_REQUEST, "Clients may send only requests and notifications", status=400)
    if not isinstance(message, RpcRequest):
        # This transport has no cancellation message: clients disconnect to end a call.
        _check_version(request.header(jsonrpc.HEADER))
        return without_body(202)
    _check_envelope(request, message)
    match message.method:
        case "server/discover":
            found = {"supportedVersions": jsonrpc.SERVED, "capabilities": CAPABILITIES}
            if toolbox.instructions:
                found["instructions"] = toolbox.instructions
            return _whole(message, {**found, "ttlMs": _DISCOVERY_LASTS, "cacheScope": "private"})
        case "tools/list":
            listed = list_tools(toolbox, caller, message)
            return _whole(message, {**listed, "ttlMs": _LIST_LASTS, "cacheScope": "private"})
        case "tools/call":
            call = Call(toolbox, caller, message, _beside(), None)
            call.start()
            watch = request.watch_disconnect()
            if streams and message.progress_token is not None:
                return streamed_answer(call, watch, is_primed=False)
            # Without progress there is nothing to stream, and clients accept larger responses (images) than events.
            return whole_answer(call, watch)
    raise no_method(message, status=404)


def _whole(request: RpcRequest, result: dict[str, Any]) -> ClientResponse:
    return whole(jsonrpc.write_result(request.id, {**result, **_beside()}))


def _beside() -> dict[str, Any]:
    """Return the fields that every result has."""
    return {"resultType": "complete", "_meta": {jsonrpc.META_SERVER: server_info()}}


def _check_envelope(request: ClientRequest, message: RpcRequest) -> None:
    """Check the required fields of `_meta`, and the headers against the body. Raises RpcError (400)."""
    meta = message.meta
    for key in (jsonrpc.META_VERSION, jsonrpc.META_CAPABILITIES):
        if key not in meta:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta lacks {key}", status=400)
    version = meta[jsonrpc.META_VERSION]
    if not isinstance(version, str):
        raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta: {jsonrpc.META_VERSION} must be a string", status=400)
    if not isinstance(meta[jsonrpc.META_CAPABILITIES], dict):
        words = f"params._meta: {jsonrpc.META_CAPABILITIES} must be an object"
        raise RpcError(jsonrpc.INVALID_PARAMS, words, status=400)
    if _stated(request, jsonrpc.HEADER) != version:
        raise _mismatch("MCP-Protocol-Version differs from the version in params._meta")
    if _stated(request, "mcp-method") != message.method:
        raise _mismatch("Mcp-Method differs from the method in the body")
    name = message.params.get("name")
    if message.method == "tools/call" and isinstance(name, str) and _unpacked(_stated(request, "mcp-name")) != name:
        raise _mismatch("Mcp-Name differs from the name of the tool in the body")
    _check_version(version)


def _check_version(version: str | None) -> None:
    if version not in jsonrpc.STATELESS:
        # Shortened, because it is the client's value and is sent back.
        data = {"supported": jsonrpc.SERVED, "requested": (version or "")[: jsonrpc.MAX_ID]}
        raise RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", status=400, data=data)


def _stated(request: ClientRequest, name: str) -> str | None:
    """Return a header's value without surrounding whitespace."""
    value = request.header(name)
    return None if value is None else value.strip(" \t")


def _unpacked(value: str | None) -> str | None:
    """Return a decoded header value; None if it is invalid."""
    if value is None or not (value.startswith(_PACKED) and value.endswith(_PACKED_END)):
        return value
    try:
        return b64decode(value[len(_PACKED) : -len(_PACKED_END)], validate=True).decode()
    except ValueError:
        return None


def _mismatch(words: str) -> RpcError:
    return RpcError(jsonrpc.HEADER_MISMATCH, _MISMATCH % words, status=400)
