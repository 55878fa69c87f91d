"""Responses of MCP endpoints: complete ones, streams of a call's messages, and resumed streams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import gevent
import structlog
from django.conf import settings
from redis.exceptions import RedisError

from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientResponse
from apps.kernel.concurrency.fairness import FairShare
from apps.kernel.errors import ClientGone
from apps.kernel.valkey.cache_store import CacheShare
from apps.mcp.protocol import jsonrpc
from apps.mcp.protocol.calls import Call
from apps.mcp.protocol.jsonrpc import Id, RpcError
from apps.mcp.protocol.sessions import Position, Session, is_running, read_page

log = structlog.get_logger(__name__)

EVENTS: Final = "text/event-stream"
JSON: Final = "application/json"
_STREAM_HEADERS: Final = [
    ("Content-Type", f"{EVENTS}; charset=utf-8"),
    # Keeps proxies from buffering the stream.
    ("X-Accel-Buffering", "no"),
]
# A comment, which clients ignore.
_HEARTBEAT: Final = b": \n\n"
# Seconds between checks of a log: soon after a message, later without one; and between checks of its call.
_SOON, _LATER, _ALIVE_SECONDS = 0.02, 0.25, 2.0
# Resumed streams at a time in one worker, and of one organization.
RESUMED: Final[FairShare[UUID]] = FairShare(200, 100, "resumed streams")


def whole(body: bytes, status: int = 200, headers: list[tuple[str, str]] | None = None) -> ClientResponse:
    """Return a complete JSON response."""
    own = [("Content-Type", JSON), ("Content-Length", str(len(body)))]
    return ClientResponse(status, [*own, *(headers or [])], [body])


def without_body(status: int, headers: list[tuple[str, str]] | None = None) -> ClientResponse:
    """Return a response without a body."""
    return ClientResponse(status, [("Content-Length", "0"), *(headers or [])], [b""])


def failed(request_id: Id | None, error: RpcError, headers: list[tuple[str, str]] | None = None) -> ClientResponse:
    """Return an error."""
    return whole(jsonrpc.write_error(request_id, error), error.status, headers)


def whole_answer(call: Call, watch: ClientDisconnect) -> ClientResponse:
    """Wait for a call's end and return its answer; progress is dropped. Raises ClientGone."""
    answer = b""
    try:
        while True:
            with watch.raise_while_waiting():
                said = call.next_said(settings.HEARTBEAT_INTERVAL)
            if said is not None and said.is_last:
                break
            answer = answer if said is None or said.message is None else said.message
    except ClientGone:
        call.leave()
        raise
    finally:
        watch.close()
    return whole(answer)


def streamed_answer(call: Call, watch: ClientDisconnect, *, is_primed: bool) -> ClientResponse:
    """Return the stream of a call's messages."""
    return ClientResponse(200, [*_STREAM_HEADERS], CallStream(call, watch, is_primed=is_primed))


class CallStream:
    """The body of a stream whose call this process answers."""

    def __init__(self, call: Call, watch: ClientDisconnect, *, is_primed: bool) -> None:
        self._call, self._watch, self._is_primed = call, watch, is_primed
        self._has_ended = False

    def __iter__(self) -> Iterator[bytes]:
        """Yield messages as they come, and heartbeats in between."""
        if self._is_primed and self._call.kept is not None:
            yield b"id: %b\ndata: \n\n" % str(Position(self._call.kept.stream, 0)).encode()
        while True:
            try:
                with self._watch.raise_while_waiting():
                    said = self._call.next_said(settings.HEARTBEAT_INTERVAL)
            except ClientGone:
                return
            if said is None:
                yield _HEARTBEAT
            elif said.is_last:
                self._has_ended = True
                return
            elif said.message is not None:
                yield _frame(said.message, said.position)

    def close(self) -> None:
        """Leave the call; the server closes a stream whenever it ends."""
        self._watch.close()
        if not self._has_ended:
            self._call.leave()


def resumed_answer(session: Session, share: CacheShare, request_id: Id, position: Position) -> ClientResponse:
    """Return the rest of a stream after a position, of any worker's call. Raises RateLimited, Overloaded."""
    RESUMED.take(share.organization_id)
    return ClientResponse(200, [*_STREAM_HEADERS], ResumedStream(session, share, request_id, position))


class ResumedStream:
    """The body of a stream that is read from its log."""

    def __init__(self, session: Session, share: CacheShare, request_id: Id, position: Position) -> None:
        self._session, self._share, self._request_id, self._position = session, share, request_id, position
        self._is_open = True

    def __iter__(self) -> Iterator[bytes]:
        """Yield the messages after the position until the stream ends."""
        pause, alive_at, quiet_at = _SOON, time.monotonic() + _ALIVE_SECONDS, _quiet_at()
        is_lost = False
        while True:
            messages, has_ended = self._read()
            for message in messages:
                self._position = Position(self._position.stream, self._position.number + 1)
                yield _frame(message, self._position)
            if has_ended:
                return
            now = time.monotonic()
            if messages:
                pause, quiet_at = _SOON, _quiet_at()
                continue
            if is_lost:
                words = (
                    "The call was lost with the worker that answered it, or its stream could not be kept; call again"
                )
                yield _frame(jsonrpc.write_error(self._request_id, RpcError(jsonrpc.INTERNAL_ERROR, words)), None)
                return
            if now >= alive_at:
                # A last message may have arrived since the check above, so the log is read again.
                alive_at, is_lost = now + _ALIVE_SECONDS, not self._is_running()
                continue
            if now >= quiet_at:
                quiet_at = _quiet_at()
                yield _HEARTBEAT
            gevent.sleep(pause)
            pause = min(2 * pause, _LATER)

    def close(self) -> None:
        """Release the slot among the resumed streams."""
        if self._is_open:
            self._is_open = False
            RESUMED.give_back(self._share.organization_id)

    def _read(self) -> tuple[list[bytes], bool]:
        try:
            page = read_page(self._session, self._share, self._position)
        except RedisError as error:
            log.warning("mcp.stream_not_read", error=type(error).__name__)
            return [], False
        return page.messages, page.has_ended

    def _is_running(self) -> bool:
        try:
            return is_running(self._session, self._position.stream)
        except RedisError:
            return True


def _frame(message: bytes, position: Position | None) -> bytes:
    named = b"" if position is None else b"id: %b\n" % str(position).encode()
    return b"%bevent: message\ndata: %b\n\n" % (named, message)


def _quiet_at() -> float:
    heartbeat: float = settings.HEARTBEAT_INTERVAL
    return time.monotonic() + heartbeat
