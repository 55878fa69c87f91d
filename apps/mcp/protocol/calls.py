"""Calls of tools: the interface of an endpoint's toolbox, and calls that run, each in a greenlet of its own.

The greenlet passes its messages to the listener. A call whose stream can be resumed continues without its client, until
it ends, is cancelled or its session ends. Any other call ends when its client leaves. The number of calls is limited.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

import gevent
import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError
from gevent.monkey import is_module_patched
from gevent.queue import Empty, SimpleQueue
from redis.exceptions import RedisError

from apps.gateway.access.policy import Policy
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.kernel.errors import ApiError, ClientGone, Overloaded
from apps.kernel.postgres import database
from apps.kernel.valkey.redis import client
from apps.mcp.protocol import jsonrpc
from apps.mcp.protocol.jsonrpc import Id, RpcError, RpcRequest
from apps.mcp.protocol.sessions import LEASE, Position, StreamLog, is_cancellation, session_key

# Characters of a tool's name.
MAX_NAME: Final = 256


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: an API key, presented directly or by an access token that was granted for it."""

    # Argument of `find_policy`: the client's token, or an internal token for a key. Never logged or stored.
    token: str
    # The key's policy at the time of this request.
    policy: Policy
    # The owner of sessions: the key or the grant. No other credential may use them.
    binding: str
    # The user who consented to the grant; None for an API key.
    user_id: Any = None
    # Headers of the HTTP request that apply to model requests (tags, request id, source).
    headers: Mapping[str, str] = {}


class Progress(Protocol):
    """Reports the progress of a call."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report; `progress` grows with every call, other values are dropped."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool: content blocks in the protocol's format, and the same as structured data."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    # The `_meta` beside them.
    meta: dict[str, Any] | None = None

    def wire(self) -> dict[str, Any]:
        """Return the result in the protocol's format."""
        wire: dict[str, Any] = {"content": self.content, "isError": self.is_error}
        if self.structured is not None:
            wire["structuredContent"] = self.structured
        if self.meta is not None:
            wire["_meta"] = self.meta
        return wire


class UnknownTool(Exception):
    """The caller has no tool with this name."""


class Toolbox(Protocol):
    """The tools of one endpoint."""

    # Sessions are valid only for the toolbox that opened them: `mcp`, `mcp/<server>`.
    name: str
    # For the model.
    instructions: str

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools in the format of `tools/list`, always in the same order. Raises ApiError."""

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool and return its result. `progress` is None if the client wants none.

        `cancelled` ends each wait inside its `raise_while_waiting()` with ClientGone. Raises UnknownTool, ApiError
        (which becomes an error result for the caller), and ClientGone after cancellation.
        """


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


# The server's capabilities; it does not notify of changed lists.
CAPABILITIES: Final[dict[str, Any]] = {"tools": {"listChanged": False}}


def server_info() -> dict[str, str]:
    """Return the server's name and version."""
    return {"name": "model-gateway", "title": "Model gateway", "version": settings.VERSION}


def list_tools(toolbox: Toolbox, caller: Caller, request: RpcRequest) -> dict[str, Any]:
    """Return the result of `tools/list`: one page. Raises RpcError for a cursor, because none is issued; ApiError."""
    if request.params.get("cursor") is not None:
        raise RpcError(jsonrpc.INVALID_PARAMS, "cursor: there is only one page", status=400)
    return {"tools": toolbox.list_tools(caller)}


def no_method(request: RpcRequest, status: int) -> RpcError:
    """Return the error for an unsupported method."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {request.method}", status=status)


log = structlog.get_logger(__name__)

# Calls of one worker at a time: in total, of one organization, and of one credential.
MAX_CALLS: Final = 400
MAX_CALLS_OF_ORGANIZATION: Final = 200
MAX_CALLS_OF_ONE: Final = 50
# Seconds between checks for cancellations from other workers.
_LOOK_SECONDS: Final = 0.5
# Key in `_meta` of an error result, for programs.
ERROR_META: Final = "gateway/error"
# Characters of a progress message.
_MAX_MESSAGE: Final = 16_384

_calls: set[Call] = set()
_looking = False


class CallMessage:
    """A message of a call, with its position if the stream is stored; the last one ends the stream."""

    __slots__ = ("is_last", "message", "position")

    def __init__(self, message: bytes | None, position: Position | None, *, is_last: bool) -> None:
        self.message, self.position, self.is_last = message, position, is_last


class Call:
    """One call of a tool."""

    def __init__(
        self, toolbox: Toolbox, caller: Caller, request: RpcRequest, extra: dict[str, Any], kept: StreamLog | None
    ) -> None:
        """Prepare a call; `extra` is added to the result, `kept` is the log of a resumable stream.

        Raises RpcError.
        """
        self.name, self.arguments = _read_call(request)
        self.switch = CancelSwitch()
        self.kept = kept
        self.binding, self.organization_id = caller.binding, caller.policy.organization_id
        self._toolbox, self._caller, self._request, self._extra = toolbox, caller, request, extra
        self._token = request.progress_token
        self._progress = float("-inf")
        self._said: SimpleQueue[CallMessage] = SimpleQueue()
        self._is_listened_to = True

    def start(self) -> None:
        """Start the call. Raises Overloaded at the limit of calls, and RpcError for an id that is in use."""
        own = sum(1 for call in _calls if call.binding == self.binding)
        of_organization = sum(1 for call in _calls if call.organization_id == self.organization_id)
        if len(_calls) >= MAX_CALLS or of_organization >= MAX_CALLS_OF_ORGANIZATION or own >= MAX_CALLS_OF_ONE:
            raise Overloaded("Too many tool calls are running; try again shortly")
        if self.kept is not None and not self.kept.begin():
            raise RpcError(jsonrpc.INVALID_REQUEST, "A request with this id is running in this session", status=400)
        _calls.add(self)
        if is_module_patched("socket"):
            _keep_looking()
            gevent.spawn(self._run)
        else:
            self._run()

    def next_said(self, seconds: float) -> CallMessage | None:
        """Return the next message; None after `seconds` without one."""
        try:
            return self._said.get(timeout=seconds)
        except Empty:
            return None

    def leave(self) -> None:
        """Stop listening: a call with a resumable stream continues, others are cancelled."""
        self._is_listened_to = False
        if self.kept is None or self.kept.is_broken:
            self.switch.cancel()

    def _run(self) -> None:
        try:
            answer = self._answer()
            if answer is not None:
                self._say(answer)
        finally:
            _calls.discard(self)
            if self.kept is not None:
                self.kept.end()
            self._said.put(CallMessage(None, None, is_last=True))
            if is_module_patched("socket"):
                database.release_connection()

    def _answer(self) -> bytes | None:
        """Return the answer to the request; None after cancellation, when no one waits for it."""
        try:
            progress = None if self._token is None else partial(self._tell, self._token)
            result = self._toolbox.call_tool(self._caller, self.name, self.arguments, progress, self.switch)
        except ClientGone:
            return None
        except UnknownTool:
            return jsonrpc.write_error(self._request.id, RpcError(jsonrpc.INVALID_PARAMS, f"Unknown tool: {self.name}"))
        except ApiError as error:
            result = error_result(error)
        except DatabaseError as error:
            log.warning("mcp.without_database", error=type(error).__name__)
            result = error_result(Overloaded("The gateway cannot reach its database right now; try again shortly"))
        except Exception:
            log.exception("mcp.tool_failed", tool=self.name)
            failure = RpcError(jsonrpc.INTERNAL_ERROR, "The gateway failed to answer this call")
            return jsonrpc.write_error(self._request.id, failure)
        if self.switch.is_thrown:
            return None
        return jsonrpc.write_result(self._request.id, {**result.wire(), **self._extra_of(result)})

    def _extra_of(self, result: CallResult) -> dict[str, Any]:
        if "_meta" not in self._extra or result.meta is None:
            return self._extra
        return {**self._extra, "_meta": {**self._extra["_meta"], **result.meta}}

    def _tell(self, token: Id, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send progress, unless it has not grown."""
        if progress <= self._progress or self.switch.is_thrown:
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message[:_MAX_MESSAGE]
        self._say(jsonrpc.write_notification("notifications/progress", params))

    def _say(self, message: bytes) -> None:
        position = None if self.kept is None else self.kept.append(message)
        if self._is_listened_to:
            self._said.put(CallMessage(message, position, is_last=False))
        elif self.kept is not None and self.kept.is_broken:
            # The rest of the stream could not be read.
            self.switch.cancel()


def cancel_here(session_digest: str, request_id: Id | None = None) -> None:
    """Cancel a call of a session that this process answers, or all of them."""
    for call in list(_calls):
        if call.kept is None or call.kept.session.digest != session_digest:
            continue
        if request_id is None or call.kept.request_id == request_id:
            call.switch.cancel()


def error_result(error: ApiError) -> CallResult:
    """Return the result of a failed call: a message for the model, and codes for programs."""
    meta: dict[str, Any] = {"status": error.status, "type": error.type, "code": error.code}
    if error.param is not None:
        meta["param"] = error.param
    if error.retry_after is not None:
        meta["retryAfter"] = error.retry_after
    return CallResult(content=[text_block(f"{error.code}: {error.message}")], is_error=True, meta={ERROR_META: meta})


def _read_call(request: RpcRequest) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments in a request. Raises RpcError."""
    name, arguments = request.params.get("name"), request.params.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise RpcError(jsonrpc.INVALID_PARAMS, "name: Required, a string", status=400)
    if not isinstance(arguments, dict):
        raise RpcError(jsonrpc.INVALID_PARAMS, "arguments must be an object", status=400)
    return name, arguments


def _keep_looking() -> None:
    global _looking
    if not _looking:
        _looking = True
        gevent.spawn(_look_on)


def _look_on() -> None:
    """Renew the leases on this worker's calls, and cancel calls that another worker cancelled, while there are any."""
    global _looking
    try:
        while _calls:
            gevent.sleep(_LOOK_SECONDS)
            kept = [call for call in _calls if call.kept is not None]
            if kept:
                _look(kept)
    finally:
        _looking = False


def _look(calls: list[Call]) -> None:
    try:
        pipeline = client().pipeline(transaction=False)
        for call in calls:
            assert call.kept is not None  # noqa: S101 - the caller has selected these
            pipeline.getex(call.kept.call_key, ex=LEASE)
            pipeline.exists(session_key(call.kept.session.digest, call.kept.session.binding))
        answers = pipeline.execute()
    except RedisError as error:
        log.warning("mcp.leases_not_renewed", error=type(error).__name__)
        return
    for call, lease, is_open in zip(calls, answers[::2], answers[1::2], strict=True):
        if is_cancellation(lease) or not is_open:
            call.switch.cancel()


def _begin_anew() -> None:
    """Reset in a forked child, which has none of its parent's greenlets."""
    global _looking
    _looking = False
    _calls.clear()


os.register_at_fork(after_in_child=_begin_anew)
