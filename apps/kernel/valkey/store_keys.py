"""Names of keys in Redis/Valkey, and their shards.

In a cluster, the keys of one script share a hash tag, and so a slot. Data of admission and settlement is sharded by
organization: all of an organization's is in one shard (docs/adr/0217). A single server has one shard, and keys without
tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar
from uuid import UUID
from zlib import crc32

from django.conf import settings
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from apps.kernel.store_urls import is_cluster_url

Item = TypeVar("Item")

_ON_CLUSTER: Final = is_cluster_url(settings.REDIS_URL)
# The number of shards, and their numbers.
SHARD_COUNT: Final[int] = settings.VALKEY_SHARDS
SHARDS: Final = range(SHARD_COUNT)


def _spread_tags(count: int) -> tuple[str, ...]:
    """Return a tag for each shard, with evenly spread slots: primaries usually have one range of slots each."""
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
    """Return the key of a name; in a cluster all names of one tag are in one slot. A tag has no braces."""
    return f"{{{tag}}}:{name}" if _ON_CLUSTER else name


def shard_of(organization_id: UUID) -> int:
    """Return an organization's shard, which is constant for a given number of shards."""
    return 0 if SHARD_COUNT == 1 else crc32(organization_id.bytes) % SHARD_COUNT


def money_key(name: str, shard: int) -> str:
    """Return the key of admission and settlement data in a shard: balances, notes, rates, the outbox.

    A reservation changes several of them atomically.
    """
    return _PREFIXES[shard] + name


def money_keys(name: str) -> tuple[str, ...]:
    """Return the keys of data that each shard has, by shard."""
    return tuple(prefix + name for prefix in _PREFIXES)


def money_pattern(name: str) -> str:
    """Return the pattern of names with a prefix in any shard."""
    return f"{'{*}:' if _ON_CLUSTER else ''}{name}*"


def shard_of_key(key: str) -> int:
    """Return the shard of such a key. Raises ValueError for any other key."""
    if SHARD_COUNT == 1:
        return 0
    shard = _SHARD_OF_PREFIX.get(key[: key.find(":") + 1])
    if shard is None:
        raise ValueError(f"{key} is in no shard; VALKEY_SHARDS is {SHARD_COUNT}, and must be the same everywhere")
    return shard


def by_shard(items: Iterable[Item], key_of: Callable[[Item], str]) -> dict[int, list[Item]]:
    """Group items by the shard of their keys, because a script works in one shard."""
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(shard_of_key(key_of(item)), []).append(item)
    return groups


def lua_key(name: str) -> str:
    """Return a Lua expression for a key in the shard of the script's first key."""
    return f"(string.match(KEYS[1], '^{{[^}}]*}}:') .. '{name}')" if _ON_CLUSTER else f"'{name}'"
