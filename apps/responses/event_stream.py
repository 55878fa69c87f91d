"""Event stream and event log: a background response's events as server-sent events, from any one on, in any worker.

The log of events is one list a response in the cache store, in order; each entry has its sequence number in clear and
its event encrypted. It is bounded in bytes and time, and a part of what its organization may keep. A log that could not
be kept whole is dropped: a stream with a hole must never be taken for a whole one. Where the log ends without the last
event, or is gone, the row of the response says how it ended (the run was cancelled, or its worker lost).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.gateway.access.policy import Policy
from apps.gateway.client.http_request import ClientResponse
from apps.gateway.endpoints.answering import json_response
from apps.gateway.framing import escape_separators
from apps.kernel.concurrency.fairness import FairShare
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import decrypt_content, encrypt_content
from apps.kernel.valkey.cache_store import CacheShare
from apps.responses.access import visible_responses
from apps.responses.models import FINAL_STATUSES, StoredResponse
from apps.responses.response_rows import response_of

# Bytes of one response's events as they lie there; a longer stream can be read at its end only.
MAX_BYTES: Final = 16 * 1024 * 1024
# Seconds that events are kept after the last one.
LASTS: Final = 3_600
# Events that are read in one go.
PAGE: Final = 500
LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class EventLogWriter:
    """Appends one run's events, going on with the numbers of the run before it, if there was one."""

    def __init__(self, share: CacheShare, response_id: str, *, is_new: bool) -> None:
        """Begin a new log, or go on with what there is of one; raises RedisError where the store cannot tell."""
        self._share, self._response_id, self._name = share, response_id, _name(response_id)
        self._size = 0
        self._is_broken = False
        last = [] if is_new else share.read_items(self._name, -1, -1)
        self._next = _number_of(last[0]) + 1 if last else 0

    def append(self, event: dict[str, Any]) -> None:
        """Append an event under the next sequence number."""
        if self._is_broken:
            return
        numbered = {**event, "sequence_number": self._next}
        sealed = encrypt_content(msgspec.json.encode(numbered), _place(self._response_id, self._next))
        entry = b"%d:%b" % (self._next, sealed)
        self._size += len(entry)
        try:
            fits = self._size <= MAX_BYTES
            if not (fits and self._share.append(self._name, entry, LASTS, is_first=self._next == 0)):
                log.info("responses.events_too_many", response=self._response_id)
                self._break()
                return
            self._next += 1
        except RedisError as error:
            log.warning("responses.event_not_kept", response=self._response_id, error=type(error).__name__)
            self._break()

    def prolong(self) -> None:
        """Let the events be kept on while the run does."""
        try:
            self._share.prolong([self._name], LASTS)
        except RedisError as error:
            log.warning("responses.events_not_prolonged", response=self._response_id, error=type(error).__name__)

    def _break(self) -> None:
        self._is_broken = True
        try:
            self._share.forget(self._name)
        except RedisError:
            # The events there end without a last one, and expire; a reader waits for the last one.
            log.warning("responses.events_not_dropped", response=self._response_id)


def read(organization_id: UUID, response_id: str, after: int) -> Iterator[dict[str, Any]]:
    """Yield the events behind a sequence number that are there, at most a page. Raises RedisError."""
    # Numbers are positions.
    for entry in _place_of(organization_id).read_items(_name(response_id), after + 1, after + PAGE):
        number, _, sealed = entry.partition(":")
        yield msgspec.json.decode(decrypt_content(sealed, _place(response_id, int(number))))


def is_kept(organization_id: UUID, response_id: str) -> bool:
    """Tell whether there is a log. Raises RedisError."""
    return _place_of(organization_id).has(_name(response_id))


def drop(organization_id: UUID, response_id: str) -> None:
    """Forget the events; where the store is away they expire."""
    try:
        _place_of(organization_id).forget(_name(response_id))
    except RedisError as error:
        log.warning("responses.events_not_dropped", response=response_id, error=type(error).__name__)


def _number_of(entry: str) -> int:
    return int(entry.partition(":")[0])


def _place_of(organization_id: UUID) -> CacheShare:
    """Return where an organization's logs are; nothing is written through it, so no bytes are said."""
    return CacheShare(organization_id, 0)


def _name(response_id: str) -> str:
    return f"responses:events:{response_id}"


def _place(response_id: str, number: int) -> str:
    return f"response-event:{response_id}:{number}"


log = structlog.get_logger(__name__)

# Seconds between two looks at the log: soon after an event, later while nothing comes; and at the row.
_SOON, _LATER, _ROW_SECONDS = 0.02, 0.25, 2.0
# Concurrent streams of events of one worker, and of one organization in it: each reads the log separately.
FOLLOWED: Final[FairShare[UUID]] = FairShare(1_000, 200, "streams of background responses")
# A comment, which clients pass over.
_HEARTBEAT: Final = b": \n\n"
_HEADERS: Final = [
    ("Content-Type", "text/event-stream; charset=utf-8"),
    # Proxies that buffer would hold the stream back.
    ("X-Accel-Buffering", "no"),
]
_LAST_OF = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
    "cancelled": "response.cancelled",
}
# Before the first event.
FROM_THE_START: Final = -1


class EventStream:
    """The body of a streamed answer."""

    def __init__(self, policy: Policy, response_id: str, after: int) -> None:
        """Take a place among those that follow events. Raises RateLimited, Overloaded."""
        self._policy, self._response_id, self._after = policy, response_id, after
        FOLLOWED.take(policy.organization_id)
        self._is_open = True

    def close(self) -> None:
        """Give back the place; the server closes a stream whenever it ends."""
        if self._is_open:
            self._is_open = False
            FOLLOWED.give_back(self._policy.organization_id)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the events behind the one that the client has, and end with the last."""
        try:
            yield from self._follow()
        finally:
            self.close()

    def _follow(self) -> Iterator[bytes]:
        pause, row_at, quiet_until = _SOON, time.monotonic() + _ROW_SECONDS, _quiet_until()
        while True:
            is_there = False
            for event in self._read():
                is_there, self._after = True, event["sequence_number"]
                yield _frame(event)
                if event["type"] in LAST_EVENTS:
                    return
            now = time.monotonic()
            if is_there:
                pause, quiet_until = _SOON, _quiet_until()
                continue
            if now >= row_at:
                row_at = now + _ROW_SECONDS
                has_ended, row = self._look_at_row()
                if has_ended:
                    # One that was deleted meanwhile has no last event.
                    yield from self._rest(row) if row is not None else ()
                    return
            if now >= quiet_until:
                quiet_until = _quiet_until()
                yield _HEARTBEAT
            gevent.sleep(pause)
            pause = min(2 * pause, _LATER)

    def _read(self) -> list[dict[str, Any]]:
        try:
            return list(read(self._policy.organization_id, self._response_id, self._after))
        except RedisError as error:
            log.warning("responses.events_not_read", error=type(error).__name__)
            return []

    def _look_at_row(self) -> tuple[bool, StoredResponse | None]:
        """Return whether the response has ended, and the response if it is there."""
        try:
            rows = visible_responses(self._policy)
            row = database.read(partial(rows.filter(pk=self._response_id).first))
        except DatabaseError as error:
            log.warning("responses.row_not_read", error=type(error).__name__)
            return False, None
        return row is None or row.status in FINAL_STATUSES, row

    def _rest(self, row: StoredResponse) -> Iterator[bytes]:
        """Yield what has come since the last look, and the last event, which is made from the row if need be."""
        for event in self._read():
            self._after = event["sequence_number"]
            yield _frame(event)
            if event["type"] in LAST_EVENTS:
                return
        last = {"type": _LAST_OF[row.status], "sequence_number": self._after + 1, "response": response_of(row)}
        yield _frame(last)


def queued_answer(response: dict[str, Any], stream: EventStream | None) -> ClientResponse:
    """Return what a client gets that has asked for a background response: its object, or the stream of its events."""
    if stream is None:
        return json_response(msgspec.json.encode(response))
    return ClientResponse(200, [*_HEADERS], stream)


def resumed_answer(policy: Policy, row: StoredResponse, after: int) -> ClientResponse:
    """Return the stream of a response's events behind one of them. Raises InvalidRequest where they are not kept."""
    if not (row.background and row.streamed):
        raise InvalidRequest(
            "Only a response that was created with background and stream, both true, can be streamed", param="stream"
        )
    try:
        kept = is_kept(row.organization_id, row.id)
    except RedisError:
        kept = False
    if not kept and row.status in FINAL_STATUSES:
        raise InvalidRequest(
            f"The events of this response are no longer kept (they are for {LASTS} s, and up to "
            f"{MAX_BYTES} bytes); retrieve it without stream",
            param="stream",
            code="stream_expired",
        )
    return ClientResponse(200, [*_HEADERS], EventStream(policy, row.id, after))


def _frame(event: dict[str, Any]) -> bytes:
    data = escape_separators(msgspec.json.encode(event))
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), data)


def _quiet_until() -> float:
    heartbeat: float = settings.HEARTBEAT_INTERVAL
    return time.monotonic() + heartbeat
