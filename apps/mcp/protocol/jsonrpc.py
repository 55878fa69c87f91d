"""JSON-RPC 2.0 messages: reading within limits, and writing; and the revisions of the protocol. Pure.

There are two eras: up to 2025-11-25 a client opens a session (`initialize`) and names it with each request; from
2026-07-28 on each request is independent and describes its client in `_meta`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.kernel.json_bounds import Bounds, OutOfBounds, decode_within

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# The protocol's own code, from 2026-07-28 on.
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

# Limits of a message. A conversation of ten thousand turns has fewer values.
BOUNDS: Final = Bounds(values=50_000, depth=64, name=1_024, digits=64)
# Characters of a method's name and of string ids and progress tokens, and the range of whole numbers.
_MAX_METHOD, MAX_ID, _MAX_NUMBER = 128, 256, 2**53

Id = str | int


class RpcError(Exception):
    """A protocol error as the answer to a request; `status` is HTTP's."""

    def __init__(self, code: int, message: str, *, status: int = 200, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.data = code, message, status, data


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, which is answered under its id."""

    id: Id
    method: str
    params: dict[str, Any]

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of the parameters; empty if it is not an object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> Id | None:
        """The token for progress messages; None if the client wants none. Raises RpcError."""
        token = self.meta.get("progressToken")
        if token is None:
            return None
        if not is_id(token):
            raise RpcError(INVALID_PARAMS, f"progressToken {_ID_WORDS}", status=400)
        return token  # type: ignore[no-any-return] # `is_id` has checked


class RpcNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A message without an answer."""

    method: str
    params: dict[str, Any]


class RpcReply(msgspec.Struct, frozen=True):
    """A client's answer to a request; this server sends no requests."""


Message = RpcRequest | RpcNotification | RpcReply
_ID_WORDS: Final = f"must be a string of at most {MAX_ID} characters or a whole number"


def is_id(value: Any) -> bool:
    """Return whether a value may be an id or a progress token."""
    if isinstance(value, str):
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER


def read_message(body: bytes) -> Message:
    """Return the message in a body. Raises RpcError (400)."""
    try:
        value = decode_within(body, BOUNDS)
    except OutOfBounds as passed:
        raise RpcError(INVALID_REQUEST, f"The request body {passed}", status=400) from None
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "The request body is not valid JSON", status=400) from None
    if isinstance(value, list):
        # Batches were removed from the protocol with 2025-06-18.
        raise RpcError(INVALID_REQUEST, "Batches are not supported: send one message per request", status=400)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'A message must be an object with "jsonrpc": "2.0"', status=400)
    if "method" not in value:
        if "result" in value or "error" in value:
            return RpcReply()
        raise RpcError(INVALID_REQUEST, "method: Required", status=400)
    return _read_call(value)


def _read_call(value: dict[str, Any]) -> Message:
    if "id" in value and not is_id(value["id"]):
        raise RpcError(INVALID_REQUEST, f"id {_ID_WORDS}", status=400)
    method, params = value["method"], value.get("params", {})
    if not isinstance(method, str) or not 0 < len(method) <= _MAX_METHOD:
        raise RpcError(INVALID_REQUEST, f"method must be a string of 1 to {_MAX_METHOD} characters", status=400)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object", status=400)
    if "id" in value:
        return RpcRequest(id=value["id"], method=method, params=params)
    return RpcNotification(method=method, params=params)


def id_of(body: bytes) -> Id | None:
    """Return the id in a body whose other parts are invalid; None if there is none."""
    try:
        value = decode_within(body, BOUNDS)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if is_id(found) else None


def write_result(request_id: Id, result: dict[str, Any]) -> bytes:
    """Return the answer to a request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def write_error(request_id: Id | None, error: RpcError) -> bytes:
    """Return the answer to a failed request; its id is null if it is unknown."""
    detail: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        detail["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": detail})


def write_notification(method: str, params: dict[str, Any]) -> bytes:
    """Return a notification."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


# With sessions, newest first; and without.
WITH_SESSIONS: Final = ("2025-11-25", "2025-06-18")
STATELESS: Final = ("2026-07-28",)
SERVED: Final = (*STATELESS, *WITH_SESSIONS)
# Old revisions with sessions that are not supported: their clients are offered a newer one.
_BYGONE: Final = ("2025-03-26", "2024-11-05")
# From this revision on, a stream begins with an event that has an id and no data, so that it can be resumed from there.
_PRIMED_FROM: Final = "2025-11-25"

HEADER: Final = "mcp-protocol-version"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"


def is_stateless(header: str | None, params: dict[str, Any]) -> bool:
    """Return whether a request is of the era without sessions: by its header, or by the fields in `_meta`.

    Unknown versions count as the newer era, whose error lists the supported ones.
    """
    if header is not None:
        return header not in WITH_SESSIONS and header not in _BYGONE
    meta = params.get("_meta")
    return isinstance(meta, dict) and META_VERSION in meta


def negotiated(asked: Any) -> str:
    """Return the revision of a session: the requested one if supported, else the newest."""
    return asked if asked in WITH_SESSIONS else WITH_SESSIONS[0]


def is_primed(revision: str) -> bool:
    """Return whether clients of a revision expect a first event without data."""
    return revision >= _PRIMED_FROM
