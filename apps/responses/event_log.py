"""Event log: the events of one background stream, in the cache store, so that any worker can resume it.

One list a response, in order; each entry has its sequence number in clear and its event encrypted. Bounded in bytes and
time, and a part of what its organization may keep. A log that could not be kept whole is dropped: a stream with a hole
must never be taken for a whole one. Where it is gone a reader gets the last event, made from the response's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.kernel.secrets.encryption import decrypt_content, encrypt_content
from apps.kernel.valkey.cache_store import CacheShare

log = structlog.get_logger(__name__)

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
