"""Sessions of MCP clients, stored in Valkey for all workers, with an expiry.

A session has a random id, stored as a digest, and belongs to the credential and the endpoint that opened it, so that a
stolen or planted session id is useless. Sessions are limited in lifetime and number.
"""

from __future__ import annotations

import secrets
import time
from hashlib import sha256
from typing import Final

import msgspec
from redis.exceptions import RedisError

from apps.kernel.errors import Overloaded
from apps.kernel.valkey.redis import LuaScript, client
from apps.kernel.valkey.store_keys import tagged_key

# Seconds until an idle session ends, and sessions per credential: the oldest are removed.
LASTS: Final = 6 * 3_600
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
        _OPEN(keys, [msgspec.json.encode(session), LASTS, _now(), MAX_SESSIONS])
    except RedisError as error:
        raise _away() from error
    return session_id


def find_session(session_id: str, binding: str, endpoint: str) -> Session | None:
    """Return a session and extend it; None for one that is over or another caller's. Raises Overloaded."""
    if not 0 < len(session_id) <= _MAX_ID:
        return None
    try:
        found = _FIND([session_key(_digest(session_id), binding), _list_key(binding)], [LASTS, _now()])
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
