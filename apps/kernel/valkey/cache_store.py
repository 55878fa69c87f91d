"""Cache store: content that is stored for organizations, with limits for each organization and in total.

It holds cached answers, embeddings, reasoning, stream logs and sessions at MCP servers. CACHE_URL names a separate
store, which may evict keys, so that admission never shares memory with this content. If it is the server of REDIS_URL,
the limits below are the only ones.

Each write is one script: it adds the bytes to the organization's count and drops the organization's oldest entries
until they fit, then the oldest of the largest organization until all fit. Expired entries are subtracted with the
organization's next write, so a count may be too high for a while but is never too low. The exception is a server that
evicts a part of an index: the index is then reset, and that server's `maxmemory` is the limit.

In a cluster, the cache is divided into parts by organization, each in one slot with its share of the total limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import UUID
from zlib import crc32

from django.conf import settings

from apps.kernel.store_urls import is_cluster_url
from apps.kernel.valkey.redis import LuaScript, cache_client

# Bytes of an entry besides its value and its names in the index; and of a list item besides its value.
ENTRY_OVERHEAD: Final = 512
ITEM_OVERHEAD: Final = 32
# Entries dropped per script when an organization is erased.
_BATCH: Final = 1_000

# KEYS[1] has each organization's bytes, and their sum under the empty name, in one key so that they are lost together.
_ACCOUNTS: Final = f"""
local accounts, owner = KEYS[1], ARGV[1]
local prefix = string.match(accounts, '^{{[^}}]*}}:')
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local function whole(number) return string.format('%.0f', number) end
local function entry_key(whose, name) return prefix .. whose .. ':' .. name end
local function index_of(whose)
  local base = prefix .. whose .. ':'
  return base .. 'sizes', base .. 'ages', base .. 'ends'
end
local function used(whose) return tonumber(redis.call('ZSCORE', accounts, whose) or '0') end
local function count(whose, bytes)
  if bytes == 0 then return end
  for _, account in ipairs({{whose, ''}}) do
    if tonumber(redis.call('ZINCRBY', accounts, whole(bytes), account)) <= 0 then
      redis.call('ZREM', accounts, account)
    end
  end
end
local function begin_index_again(whose)
  redis.call('DEL', index_of(whose))
  count(whose, -used(whose))
end
local function check_index(whose)
  local there = redis.call('EXISTS', index_of(whose))
  if not ((there == 3 and used(whose) > 0) or (there == 0 and used(whose) == 0)) then begin_index_again(whose) end
end
local function forget(whose, name)
  local sizes, ages, ends = index_of(whose)
  local size = redis.call('HGET', sizes, name)
  redis.call('UNLINK', entry_key(whose, name))
  redis.call('HDEL', sizes, name)
  redis.call('ZREM', ages, name)
  redis.call('ZREM', ends, name)
  if size then count(whose, -tonumber(size)) end
end
local function forget_oldest(whose)
  local _, ages = index_of(whose)
  local oldest = redis.call('ZRANGE', ages, 0, 0)[1]
  if oldest then forget(whose, oldest) else begin_index_again(whose) end
end
local function forget_expired(whose)
  local _, _, ends = index_of(whose)
  local expired = redis.call('ZRANGEBYSCORE', ends, '-inf', whole(now), 'LIMIT', 0, {_BATCH})
  for _, name in ipairs(expired) do forget(whose, name) end
end
local function make_room(size, limit, most)
  while used(owner) > 0 and used(owner) + size > limit do forget_oldest(owner) end
  while used('') > 0 and used('') + size > most do
    for _, whose in ipairs(redis.call('ZREVRANGE', accounts, 0, 1)) do
      if whose ~= '' then forget_oldest(whose) break end
    end
  end
end
local function note(name, size, seconds, order)
  local sizes, ages, ends = index_of(owner)
  count(owner, size - tonumber(redis.call('HGET', sizes, name) or '0'))
  redis.call('HSET', sizes, name, whole(size))
  redis.call('ZADD', ages, whole(now + order), name)
  redis.call('ZADD', ends, whole(now + seconds * 1000000), name)
  if redis.call('TTL', sizes) < seconds then
    for _, key in ipairs({{sizes, ages, ends}}) do redis.call('EXPIRE', key, seconds) end
  end
end
"""

# Arguments: the organization, its limit, the total limit, seconds; then name and value of each entry.
_KEEP = LuaScript(
    _ACCOUNTS
    + f"""
check_index(owner)
forget_expired(owner)
local limit, most, seconds, kept = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), 0
for place = 5, #ARGV, 2 do
  local name, value = ARGV[place], ARGV[place + 1]
  local size = #value + 3 * #name + {ENTRY_OVERHEAD}
  forget(owner, name)
  if size <= limit and size <= most then
    make_room(size, limit, most)
    redis.call('SET', entry_key(owner, name), value, 'EX', seconds)
    note(name, size, seconds, place)
    kept = kept + 1
  end
end
return kept
""",
    cache_client,
)
# Arguments: the organization, its limit, the total limit, seconds, list, item, 1 for the first item of a new list.
_APPEND = LuaScript(
    _ACCOUNTS
    + f"""
check_index(owner)
forget_expired(owner)
local limit, most, seconds, name, item = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local sizes, ages = index_of(owner)
local key, before, added = entry_key(owner, name), 0, #item + {ITEM_OVERHEAD}
if ARGV[7] == '1' then
  forget(owner, name)
  added = added + 3 * #name + {ENTRY_OVERHEAD}
else
  before = tonumber(redis.call('HGET', sizes, name) or '0')
end
local is_there = ARGV[7] == '1' or (before > 0 and redis.call('EXISTS', key) == 1)
if not is_there or before + added > limit or before + added > most then
  forget(owner, name)
  return 0
end
redis.call('ZADD', ages, 'XX', whole(now), name)
make_room(added, limit, most)
if before > 0 and redis.call('EXISTS', key) == 0 then return 0 end
redis.call('RPUSH', key, item)
redis.call('EXPIRE', key, seconds)
note(name, before + added, seconds, 0)
return 1
""",
    cache_client,
)
# Arguments: the organization, seconds, names.
_PROLONG = LuaScript(
    _ACCOUNTS
    + """
local sizes, ages, ends = index_of(owner)
local seconds = tonumber(ARGV[2])
for place = 3, #ARGV do
  local size = redis.call('HGET', sizes, ARGV[place])
  if size and redis.call('EXPIRE', entry_key(owner, ARGV[place]), seconds) == 1 then
    note(ARGV[place], tonumber(size), seconds, 0)
  end
end
return 1
""",
    cache_client,
)
# Arguments: the organization, names.
_FORGET = LuaScript(
    _ACCOUNTS + "for place = 2, #ARGV do forget(owner, ARGV[place]) end return 1",
    cache_client,
)
# Arguments: the organization. Returns whether entries remain.
_FORGET_SOME = LuaScript(
    _ACCOUNTS
    + f"""
for _ = 1, {_BATCH} do
  if used(owner) <= 0 then return 0 end
  forget_oldest(owner)
end
return 1
""",
    cache_client,
)


class CacheShare(NamedTuple):
    """An organization's part of the cache, with its limit in bytes."""

    organization_id: UUID
    max_bytes: int

    @classmethod
    def of(cls, organization_id: UUID, plan: str) -> CacheShare:
        """Return an organization's part by its plan."""
        limits: dict[str, int] = settings.CACHE_BYTES_BY_PLAN
        return cls(organization_id, limits[plan])

    def key(self, name: str) -> str:
        """Return the key of an entry in the store."""
        return f"{self._prefix}{self.organization_id.hex}:{name}"

    def keep(self, entries: Sequence[tuple[str, bytes]], seconds: int) -> int:
        """Store values under their names; return how many were stored: too large ones are not.

        Raises RedisError.
        """
        words = [word for entry in entries for word in entry]
        return int(_KEEP([self._accounts], [self.organization_id.hex, *self._bounds, seconds, *words]))

    def append(self, name: str, item: bytes | str, seconds: int, *, is_first: bool) -> bool:
        """Append to a list and renew its lifetime; return False, with the list deleted, if it does not fit.

        The first item starts a new list. A later item is refused if the list is gone, because it would start with a
        gap. Raises RedisError.
        """
        words = [self.organization_id.hex, *self._bounds, seconds, name, item, int(is_first)]
        return bool(_APPEND([self._accounts], words))

    def read(self, name: str) -> str | None:
        """Return a value, None where there is none. Raises RedisError."""
        found: str | None = cast(Any, cache_client()).get(self.key(name))
        return found

    def read_all(self, names: Sequence[str]) -> list[str | None]:
        """Return the value of each name. Raises RedisError."""
        found: Any = cache_client().mget([self.key(name) for name in names])
        return list(found)

    def read_items(self, name: str, first: int, last: int) -> list[str]:
        """Return a range of list items, both ends included; -1 is the last item. Raises RedisError."""
        found: Any = cache_client().lrange(self.key(name), first, last)
        return list(found)

    def has(self, name: str) -> bool:
        """Return whether there is an entry. Raises RedisError."""
        return bool(cache_client().exists(self.key(name)))

    def prolong(self, names: Sequence[str], seconds: int) -> None:
        """Renew the lifetime of entries. Raises RedisError."""
        _PROLONG([self._accounts], [self.organization_id.hex, seconds, *names])

    def forget(self, *names: str) -> None:
        """Delete entries. Raises RedisError."""
        _FORGET([self._accounts], [self.organization_id.hex, *names])

    def forget_all(self) -> None:
        """Delete all of the organization's entries. Raises RedisError."""
        while _FORGET_SOME([self._accounts], [self.organization_id.hex]):
            pass

    @property
    def used_bytes(self) -> int:
        """The bytes counted for the organization. Raises RedisError."""
        found: Any = cache_client().zscore(self._accounts, self.organization_id.hex)
        return int(found or 0)

    @property
    def _bounds(self) -> tuple[int, int]:
        most: int = settings.CACHE_BYTES
        return self.max_bytes, most // _parts()

    @property
    def _prefix(self) -> str:
        return f"{{cache-{crc32(self.organization_id.bytes) % _parts()}}}:"

    @property
    def _accounts(self) -> str:
        return f"{self._prefix}organizations"


def _parts() -> int:
    """Return the number of parts of the cache."""
    return 16 if is_cluster_url(settings.CACHE_URL) else 1
