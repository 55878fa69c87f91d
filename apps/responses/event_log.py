"""Event log: the events of one background stream, kept in Valkey so that any worker can resume it where a client left.

One list a response, in order; each entry has its sequence number in clear and its event encrypted. Bounded in bytes and
time. A log that could not be kept whole is dropped: a stream with a hole must never be taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.kernel.content_encryption import decrypt_content, encrypt_content
from apps.kernel.redis import client

log = structlog.get_logger(__name__)

# Bytes of one response's events as they lie there; a longer stream can be read at its end only.
MOST_BYTES: Final = 16 * 1024 * 1024
# Seconds that events are kept after the last one.
LASTS: Final = 3_600
# Events that are read in one go.
PAGE: Final = 500
LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class EventLogWriter:
    """Appends one run's events, going on with the numbers of the run before it, if there was one."""

    def __init__(self, response_id: str) -> None:
        """Raises RedisError."""
        self._response_id, self._key = response_id, _key(response_id)
        self._size = 0
        self._is_broken = False
        last = client().lindex(self._key, -1)
        self._next = 0 if last is None else _number_of(last) + 1

    def append(self, event: dict[str, Any]) -> None:
        """Append an event under the next sequence number."""
        if self._is_broken:
            return
        numbered = {**event, "sequence_number": self._next}
        sealed = encrypt_content(msgspec.json.encode(numbered), _place(self._response_id, self._next))
        entry = b"%d:%b" % (self._next, sealed)
        self._size += len(entry)
        try:
            if self._size > MOST_BYTES:
                log.info("responses.events_too_many", response=self._response_id)
                self._break()
                return
            client().rpush(self._key, entry)
            if self._next == 0 or event.get("type") in LAST_EVENTS:
                client().expire(self._key, LASTS)
            self._next += 1
        except RedisError as error:
            log.warning("responses.event_not_kept", response=self._response_id, error=type(error).__name__)
            self._break()

    def _break(self) -> None:
        self._is_broken = True
        try:
            client().delete(self._key)
        except RedisError:
            # What is there ends without a last event, and expires; a reader waits for the last one.
            log.warning("responses.events_not_dropped", response=self._response_id)


def prolong(response_ids: list[str]) -> None:
    """Let the events of runs that go on be kept on. Raises RedisError."""
    for response_id in response_ids:
        client().expire(_key(response_id), LASTS)


def read(response_id: str, after: int) -> Iterator[dict[str, Any]]:
    """Yield the events behind a sequence number that are there, at most a page. Raises RedisError."""
    # Numbers are positions.
    for entry in client().lrange(_key(response_id), after + 1, after + PAGE):
        number, _, sealed = _text(entry).partition(":")
        yield msgspec.json.decode(decrypt_content(sealed, _place(response_id, int(number))))


def is_kept(response_id: str) -> bool:
    """Tell whether there is a log. Raises RedisError."""
    return bool(client().exists(_key(response_id)))


def drop(response_id: str) -> None:
    """Forget the events. Raises RedisError."""
    client().delete(_key(response_id))


def _number_of(entry: str | bytes) -> int:
    return int(_text(entry).partition(":")[0])


def _text(entry: str | bytes) -> str:
    return entry.decode() if isinstance(entry, bytes) else entry


def _key(response_id: str) -> str:
    return f"responses:events:{response_id}"


def _place(response_id: str, number: int) -> str:
    return f"response-event:{response_id}:{number}"
