"""Stream log: the messages of one call's stream, in the cache store, so that any worker can resume it.

One list a stream: first the id of the request that is answered, then its messages, encrypted, each of them at the place
that is its number, and at last a mark of the end. Bounded in bytes and time, and a part of what its organization may
keep; a log that could not be kept whole is dropped, for a stream with a hole must never be taken for a whole one. The
lease on a call is where reservations are: it must not be evicted.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.kernel.cache_store import CacheShare
from apps.kernel.content_encryption import decrypt_content, encrypt_content
from apps.kernel.redis import client
from apps.mcp.protocol.jsonrpc import Id
from apps.mcp.protocol.sessions import Session

log = structlog.get_logger(__name__)

# Bytes of one stream as they lie there.
MOST_BYTES: Final = 8 * 1024 * 1024
# Seconds that a stream is kept after its last message, and messages that are read in one go.
LASTS: Final = 300
PAGE: Final = 200
# Seconds for which a call is taken for alive after its worker said so.
LEASE: Final = 20
_END: Final = "."
_CANCELLED: Final = "cancelled"
_RUNNING: Final = "running"
_EVENT_ID = re.compile(r"([0-9a-f]{32})\.(\d{1,9})")


class Position(NamedTuple):
    """A place in a stream: behind its message of this number; 0 is before the first."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}.{self.number}"


def stream_of(session: Session, request_id: Id) -> str:
    """Return the name of the stream that answers a request of a session."""
    kind = "t" if isinstance(request_id, str) else "n"
    return sha256(f"{session.digest}:{kind}:{request_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_position(event_id: str) -> Position | None:
    """Return the place that an event's id stands for; None for what is none."""
    found = _EVENT_ID.fullmatch(event_id)
    return None if found is None else Position(found[1], int(found[2]))


class StreamLog:
    """The log of a call that this process answers, and its lease on the call."""

    def __init__(self, session: Session, share: CacheShare, request_id: Id) -> None:
        self.stream = stream_of(session, request_id)
        self.session, self.request_id = session, request_id
        self._share = share
        self._name, self.call_key = _log_name(session, self.stream), call_key(session, self.stream)
        self._size = 0
        self._number = 0
        self.is_broken = False

    def begin(self) -> bool:
        """Begin the log; tell whether no other call of the session has the same id just now."""
        try:
            if not client().set(self.call_key, _RUNNING, nx=True, ex=LEASE):
                return False
        except RedisError as error:
            self._break(error)
            return True
        self._append(encrypt_content(msgspec.json.encode(self.request_id), self._name).decode(), is_first=True)
        return True

    def append(self, message: bytes) -> Position:
        """Keep a message, and return its place."""
        self._number += 1
        self._append(encrypt_content(message, f"{self._name}:{self._number}").decode())
        return Position(self.stream, self._number)

    def end(self) -> None:
        """Say that nothing follows, and give the call up."""
        self._append(_END)
        try:
            client().delete(self.call_key)
        except RedisError as error:
            # It expires.
            log.warning("mcp.call_not_given_up", error=type(error).__name__)

    def _append(self, entry: str, *, is_first: bool = False) -> None:
        if self.is_broken:
            return
        self._size += len(entry)
        try:
            fits = self._size <= MOST_BYTES
            if not (fits and self._share.append(self._name, entry, LASTS, is_first=is_first)):
                self._break(None)
        except RedisError as error:
            self._break(error)

    def _break(self, error: RedisError | None) -> None:
        self.is_broken = True
        log.info("mcp.stream_not_kept", error=None if error is None else type(error).__name__)
        try:
            self._share.forget(self._name)
        except RedisError:
            # What is there has no end, and expires: a reader waits for the end.
            log.warning("mcp.stream_not_dropped")


class LogPage(NamedTuple):
    """What lies behind a place: messages, and whether the stream ends with them."""

    messages: list[bytes]
    has_ended: bool


def read_page(session: Session, share: CacheShare, position: Position) -> LogPage:
    """Return the messages behind a place that are there, at most a page. Raises RedisError."""
    name = _log_name(session, position.stream)
    first = position.number + 1
    entries = share.read_items(name, first, first + PAGE - 1)
    has_ended = bool(entries) and entries[-1] == _END
    sealed = entries[:-1] if has_ended else entries
    messages = [decrypt_content(entry, f"{name}:{first + place}") for place, entry in enumerate(sealed)]
    return LogPage(messages, has_ended)


def find_request(session: Session, share: CacheShare, position: Position) -> Id | None:
    """Return the id of the request that a stream answers, None where the stream is not kept, or has no such place.

    Raises RedisError.
    """
    name = _log_name(session, position.stream)
    head = share.read_items(name, 0, 0)
    if not head or not share.read_items(name, position.number, position.number):
        return None
    found: Id = msgspec.json.decode(decrypt_content(head[0], name))
    return found


def is_running(session: Session, stream: str) -> bool:
    """Tell whether some worker answers the call. Raises RedisError."""
    return bool(client().exists(call_key(session, stream)))


def ask_to_cancel(session: Session, request_id: Id) -> None:
    """Have whoever answers a call stop; nothing is left behind where nobody does. Raises RedisError."""
    client().set(call_key(session, stream_of(session, request_id)), _CANCELLED, xx=True, ex=LEASE)


def is_cancellation(value: str | bytes | None) -> bool:
    """Tell whether what stands in a call's lease says that it is to stop."""
    return value is not None and _text(value) == _CANCELLED


def call_key(session: Session, stream: str) -> str:
    """Return where the lease on a call is."""
    return f"mcp:call:{session.digest}:{stream}"


def _log_name(session: Session, stream: str) -> str:
    return f"mcp:stream:{session.digest}:{stream}"


def _text(entry: str | bytes) -> str:
    return entry.decode() if isinstance(entry, bytes) else entry
