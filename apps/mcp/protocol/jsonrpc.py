"""JSON-RPC 2.0 messages: read within bounds, and written. Pure.

Knows the shape of messages, their bounds and their codes of errors. Must never know a method.
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
# Of the protocol's own, from 2026-07-28 on.
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

# What a message may hold. Values: a conversation of ten thousand turns has fewer.
BOUNDS: Final = Bounds(values=50_000, depth=64, name=1_024, digits=64)
# Characters of a method's name, of an id and of a progress token that are texts, and how far whole numbers go.
_MOST_METHOD, MOST_ID, _MOST_NUMBER = 128, 256, 2**53

Id = str | int


class RpcError(Exception):
    """A request that is answered with an error of the protocol; `status` is HTTP's."""

    def __init__(self, code: int, message: str, *, status: int = 200, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.data = code, message, status, data


class RpcRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: it is answered under its id."""

    id: Id
    method: str
    params: dict[str, Any]

    @property
    def meta(self) -> dict[str, Any]:
        """What stands beside the parameters; nothing where it is no object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def progress_token(self) -> Id | None:
        """What progress is to be told under; None where nobody wants to hear of it. Raises RpcError."""
        token = self.meta.get("progressToken")
        if token is None:
            return None
        if not is_id(token):
            raise RpcError(INVALID_PARAMS, f"progressToken {_ID_WORDS}", status=400)
        return token  # type: ignore[no-any-return] # `is_id` has looked


class RpcNotification(msgspec.Struct, frozen=True, kw_only=True):
    """A message that nobody answers."""

    method: str
    params: dict[str, Any]


class RpcReply(msgspec.Struct, frozen=True):
    """A client's answer to a request; this side asks nothing."""


Message = RpcRequest | RpcNotification | RpcReply
_ID_WORDS: Final = f"must be a text of at most {MOST_ID} characters or a whole number"


def is_id(value: Any) -> bool:
    """Tell whether a value may be an id, or a progress token."""
    if isinstance(value, str):
        return len(value) <= MOST_ID
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_NUMBER


def read_message(body: bytes) -> Message:
    """Return the one message that a body holds. Raises RpcError (400)."""
    try:
        value = decode_within(body, BOUNDS)
    except OutOfBounds as passed:
        raise RpcError(INVALID_REQUEST, f"The request body {passed}", status=400) from None
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "The request body is not valid JSON", status=400) from None
    if isinstance(value, list):
        # They left the protocol with 2025-06-18.
        raise RpcError(INVALID_REQUEST, "Batches are not part of the protocol: send one message a request", status=400)
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
    if not isinstance(method, str) or not 0 < len(method) <= _MOST_METHOD:
        raise RpcError(INVALID_REQUEST, f"method must be a text of 1 to {_MOST_METHOD} characters", status=400)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object", status=400)
    if "id" in value:
        return RpcRequest(id=value["id"], method=method, params=params)
    return RpcNotification(method=method, params=params)


def id_of(body: bytes) -> Id | None:
    """Return the id that a body states, for an error about the rest of it; None where there is none."""
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
    """Return the answer to a request that failed; its id is null where nobody knows it."""
    detail: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        detail["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": detail})


def write_notification(method: str, params: dict[str, Any]) -> bytes:
    """Return a message that nobody answers."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
