"""Sessions of MCP clients, and the stream log of each call, for all workers.

A session has a random id, stored in Valkey as a digest, and belongs to the credential and the endpoint that opened it,
so that a stolen or planted session id is useless. Sessions are limited in lifetime and number.

A stream log has the messages of a call's stream in the cache store, so that any worker can resume it. Each stream is a
list: the id of the request, then the messages, encrypted, at the index of their number, and an end mark. It is limited
in bytes and time, and counts towards the organization's share of the store. A log that could not be stored completely
is dropped, so that clients never see a stream with a gap. The lease on a call is in the store of reservations, because
it must not be evicted.
"""

from __future__ import annotations

import re
import secrets
import time
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
import structlog
from redis.exceptions import RedisError

from apps.kernel.errors import Overloaded
from apps.kernel.secrets.encryption import decrypt_content, encrypt_content
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import LuaScript, client, tagged_key
from apps.mcp.protocol.jsonrpc import Id

# Seconds until an idle session ends, and sessions per credential: the oldest are removed.
SESSION_LASTS: Final = 6 * 3_600
MAX_SESSIONS: Final = 100
# Maximum characters of an id.
_MAX_ID: Final = 128

# Keys: the session, the credential's sessions. Arguments: the session, seconds, now, the most sessions.
_OPEN = LuaScript("""
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], KEYS[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[4])
if surplus > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[2], surplus)
  for place = 1, #oldest, 2 do redis.call('DEL', oldest[place]) end
end
return 1
""")
# Keys: the session, the credential's sessions. Arguments: seconds, now.
_FIND = LuaScript("""
local session = redis.call('GETEX', KEYS[1], 'EX', ARGV[1])
if session then
  redis.call('ZADD', KEYS[2], 'XX', ARGV[2], KEYS[1])
  redis.call('EXPIRE', KEYS[2], ARGV[1])
end
return session
""")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """An open session; `digest` is its key."""

    digest: str
    revision: str
    binding: str
    endpoint: str


def open_session(binding: str, endpoint: str, revision: str) -> str:
    """Open a session and return its id. Raises Overloaded."""
    session_id = secrets.token_urlsafe(32)
    session = Session(digest=_digest(session_id), revision=revision, binding=binding, endpoint=endpoint)
    keys = [session_key(session.digest, binding), _list_key(binding)]
    try:
        _OPEN(keys, [msgspec.json.encode(session), SESSION_LASTS, _now(), MAX_SESSIONS])
    except RedisError as error:
        raise _away() from error
    return session_id


def find_session(session_id: str, binding: str, endpoint: str) -> Session | None:
    """Return a session and extend it; None for one that is over or another caller's. Raises Overloaded."""
    if not 0 < len(session_id) <= _MAX_ID:
        return None
    try:
        found = _FIND([session_key(_digest(session_id), binding), _list_key(binding)], [SESSION_LASTS, _now()])
    except RedisError as error:
        raise _away() from error
    if found is None:
        return None
    session = msgspec.json.decode(found, type=Session)
    return session if (session.binding, session.endpoint) == (binding, endpoint) else None


def end_session(session: Session) -> None:
    """End a session. Raises Overloaded."""
    key = session_key(session.digest, session.binding)
    try:
        client().delete(key)
        client().zrem(_list_key(session.binding), key)
    except RedisError as error:
        raise _away() from error


def session_key(digest: str, binding: str) -> str:
    """Return the key of a credential's session; it exists while the session is open."""
    return tagged_key(binding, f"mcp:session:{digest}")


def _list_key(binding: str) -> str:
    return tagged_key(binding, f"mcp:sessions:{binding}")


def _digest(session_id: str) -> str:
    return sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()


def _away() -> Overloaded:
    return Overloaded("Sessions cannot be kept right now; try again shortly")


def _now() -> int:
    """Return microseconds, so that sessions opened at once have an order."""
    return time.time_ns() // 1_000


log = structlog.get_logger(__name__)

# Stored bytes of one stream.
MAX_BYTES: Final = 8 * 1024 * 1024
# Seconds that a stream is kept after its last message, and messages per read.
LASTS: Final = 300
PAGE: Final = 200
# Seconds for which a call counts as alive after its worker's last sign.
LEASE: Final = 20
_END: Final = "."
_CANCELLED: Final = "cancelled"
_RUNNING: Final = "running"
_EVENT_ID = re.compile(r"([0-9a-f]{32})\.(\d{1,9})")


class Position(NamedTuple):
    """A position in a stream: after the message with this number; 0 is the start."""

    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}.{self.number}"


def stream_of(session: Session, request_id: Id) -> str:
    """Return the name of the stream that answers a request of a session."""
    kind = "t" if isinstance(request_id, str) else "n"
    return sha256(f"{session.digest}:{kind}:{request_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_position(event_id: str) -> Position | None:
    """Return the position in an event's id; None if it is invalid."""
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
        """Begin the log; return whether no other running call of the session has the same id."""
        try:
            if not client().set(self.call_key, _RUNNING, nx=True, ex=LEASE):
                return False
        except RedisError as error:
            self._break(error)
            return True
        self._append(encrypt_content(msgspec.json.encode(self.request_id), self._name).decode(), is_first=True)
        return True

    def append(self, message: bytes) -> Position:
        """Store a message and return its position."""
        self._number += 1
        self._append(encrypt_content(message, f"{self._name}:{self._number}").decode())
        return Position(self.stream, self._number)

    def end(self) -> None:
        """Mark the end of the stream, and release the lease."""
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
            fits = self._size <= MAX_BYTES
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
            # The remaining entries have no end mark and expire: readers wait for the end.
            log.warning("mcp.stream_not_dropped")


class LogPage(NamedTuple):
    """The messages after a position, and whether the stream ends with them."""

    messages: list[bytes]
    has_ended: bool


def read_page(session: Session, share: CacheShare, position: Position) -> LogPage:
    """Return the available messages after a position, at most a page. Raises RedisError."""
    name = _log_name(session, position.stream)
    first = position.number + 1
    entries = share.read_items(name, first, first + PAGE - 1)
    has_ended = bool(entries) and entries[-1] == _END
    sealed = entries[:-1] if has_ended else entries
    messages = [decrypt_content(entry, f"{name}:{first + place}") for place, entry in enumerate(sealed)]
    return LogPage(messages, has_ended)


def find_request(session: Session, share: CacheShare, position: Position) -> Id | None:
    """Return the id of a stream's request; None if the stream is not stored, or has no such position.

    Raises RedisError.
    """
    name = _log_name(session, position.stream)
    head = share.read_items(name, 0, 0)
    if not head or not share.read_items(name, position.number, position.number):
        return None
    found: Id = msgspec.json.decode(decrypt_content(head[0], name))
    return found


def is_running(session: Session, stream: str) -> bool:
    """Return whether a worker is running the call. Raises RedisError."""
    return bool(client().exists(call_key(session, stream)))


def ask_to_cancel(session: Session, request_id: Id) -> None:
    """Ask the worker of a call to stop; does nothing if the call is not running. Raises RedisError."""
    client().set(call_key(session, stream_of(session, request_id)), _CANCELLED, xx=True, ex=LEASE)


def is_cancellation(value: str | bytes | None) -> bool:
    """Return whether the value of a call's lease asks it to stop."""
    return value is not None and _text(value) == _CANCELLED


def call_key(session: Session, stream: str) -> str:
    """Return the key of a call's lease."""
    return f"mcp:call:{session.digest}:{stream}"


def _log_name(session: Session, stream: str) -> str:
    return f"mcp:stream:{session.digest}:{stream}"


def _text(entry: str | bytes) -> str:
    return entry.decode() if isinstance(entry, bytes) else entry
