"""Names of keys in Redis/Valkey, and the shard that each is of.

On a cluster, what one script touches carries one hash tag, and so lies in one slot. What admission and settlement touch
is kept in shards, by organization: all of one organization's lies in one of them (docs/adr/0217). On a single server
there is one shard, and names are what they always were. Knows the words in front of a name. Must never know what is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar
from uuid import UUID
from zlib import crc32

from django.conf import settings
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from apps.kernel.redis_cluster_url import is_cluster_url

Item = TypeVar("Item")

_ON_CLUSTER: Final = is_cluster_url(settings.REDIS_URL)
# How many shards there are, and their numbers.
SHARD_COUNT: Final[int] = settings.VALKEY_SHARDS
SHARDS: Final = range(SHARD_COUNT)


def _spread_tags(count: int) -> tuple[str, ...]:
    """Return a tag for each shard, whose slots are spread evenly: primaries mostly have a range of slots each."""
    if count == 1:
        return ("gateway",)
    tags = []
    for shard in range(count):
        of_share = range(shard * REDIS_CLUSTER_HASH_SLOTS // count, (shard + 1) * REDIS_CLUSTER_HASH_SLOTS // count)
        salt = 0
        while key_slot(f"shard-{shard}-{salt}".encode()) not in of_share:
            salt += 1
        tags.append(f"shard-{shard}-{salt}")
    return tuple(tags)


_PREFIXES: Final = tuple(f"{{{tag}}}:" if _ON_CLUSTER else "" for tag in _spread_tags(SHARD_COUNT))
_SHARD_OF_PREFIX: Final = {prefix: shard for shard, prefix in enumerate(_PREFIXES)}


def tagged_key(tag: str, name: str) -> str:
    """Return the key of a name; on a cluster all names of one tag lie in one slot. A tag has no braces."""
    return f"{{{tag}}}:{name}" if _ON_CLUSTER else name


def shard_of(organization_id: UUID) -> int:
    """Return the shard that has all of an organization's; it stays the same for as long as their number does."""
    return 0 if SHARD_COUNT == 1 else crc32(organization_id.bytes) % SHARD_COUNT


def money_key(name: str, shard: int) -> str:
    """Return the key, in a shard, of what admission and settlement touch: balances, notes, rates, the outbox.

    A reservation moves several of them in one step.
    """
    return _PREFIXES[shard] + name


def money_keys(name: str) -> tuple[str, ...]:
    """Return the keys of what each shard has one of, by shard."""
    return tuple(prefix + name for prefix in _PREFIXES)


def money_pattern(name: str) -> str:
    """Return the pattern that finds what begins with a name in any shard."""
    return f"{'{*}:' if _ON_CLUSTER else ''}{name}*"


def shard_of_key(key: str) -> int:
    """Return the shard that one of these keys lies in. Raises ValueError for any other key."""
    if SHARD_COUNT == 1:
        return 0
    shard = _SHARD_OF_PREFIX.get(key[: key.find(":") + 1])
    if shard is None:
        raise ValueError(f"{key} lies in no shard; VALKEY_SHARDS is {SHARD_COUNT}, and must be the same everywhere")
    return shard


def by_shard(items: Iterable[Item], key_of: Callable[[Item], str]) -> dict[int, list[Item]]:
    """Return, by shard, the items whose keys lie in it: a script takes those of one."""
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(shard_of_key(key_of(item)), []).append(item)
    return groups


def lua_key(name: str) -> str:
    """Return the Lua expression of what a name is called in the shard that a script's first key lies in."""
    return f"(string.match(KEYS[1], '^{{[^}}]*}}:') .. '{name}')" if _ON_CLUSTER else f"'{name}'"
