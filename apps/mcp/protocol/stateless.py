"""The era without sessions (from 2026-07-28 on): each request describes itself in its headers and in `_meta`.

The headers must agree with the body, because a proxy in front of the gateway may rely on them. A call ends when its
client leaves.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.mcp.protocol import jsonrpc, revisions
from apps.mcp.protocol.answers import streamed_answer, whole, whole_answer, without_body
from apps.mcp.protocol.calls import Call
from apps.mcp.protocol.jsonrpc import Message, RpcError, RpcReply, RpcRequest
from apps.mcp.protocol.toolbox import CAPABILITIES, Caller, Toolbox, list_tools, no_method, server_info

# Milliseconds for which a client may cache a list of tools, or the server's description.
_LIST_LASTS, _DISCOVERY_LASTS = 60_000, 3_600_000
# Encoding of header values that are not plain text.
_PACKED, _PACKED_END = "=?base64?", "?="
_MISMATCH: Final = "Header mismatch: %s"


def answer(
    request: ClientRequest, caller: Caller, toolbox: Toolbox, message: Message, *, streams: bool
) -> ClientResponse:
    """Answer a message. Raises RpcError, ApiError."""
    if isinstance(message, RpcReply):
        raise RpcError(jsonrpc.INVALID_REQUEST, "Clients may send only requests and notifications", status=400)
    if not isinstance(message, RpcRequest):
        # This transport has no cancellation message: clients disconnect to end a call.
        _check_version(request.header(revisions.HEADER))
        return without_body(202)
    _check_envelope(request, message)
    match message.method:
        case "server/discover":
            found = {"supportedVersions": revisions.SERVED, "capabilities": CAPABILITIES}
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
    return {"resultType": "complete", "_meta": {revisions.META_SERVER: server_info()}}


def _check_envelope(request: ClientRequest, message: RpcRequest) -> None:
    """Check the required fields of `_meta`, and the headers against the body. Raises RpcError (400)."""
    meta = message.meta
    for key in (revisions.META_VERSION, revisions.META_CAPABILITIES):
        if key not in meta:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta lacks {key}", status=400)
    version = meta[revisions.META_VERSION]
    if not isinstance(version, str):
        raise RpcError(jsonrpc.INVALID_PARAMS, f"params._meta: {revisions.META_VERSION} must be a string", status=400)
    if not isinstance(meta[revisions.META_CAPABILITIES], dict):
        words = f"params._meta: {revisions.META_CAPABILITIES} must be an object"
        raise RpcError(jsonrpc.INVALID_PARAMS, words, status=400)
    if _stated(request, revisions.HEADER) != version:
        raise _mismatch("MCP-Protocol-Version differs from the version in params._meta")
    if _stated(request, "mcp-method") != message.method:
        raise _mismatch("Mcp-Method differs from the method in the body")
    name = message.params.get("name")
    if message.method == "tools/call" and isinstance(name, str) and _unpacked(_stated(request, "mcp-name")) != name:
        raise _mismatch("Mcp-Name differs from the name of the tool in the body")
    _check_version(version)


def _check_version(version: str | None) -> None:
    if version not in revisions.STATELESS:
        # Shortened, because it is the client's value and is sent back.
        data = {"supported": revisions.SERVED, "requested": (version or "")[: jsonrpc.MAX_ID]}
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
