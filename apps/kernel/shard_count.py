"""Shard count: the number of shards that a cluster was begun with, kept in the cluster and compared at start.

Two processes that divide it otherwise would each have balances of their own, and spend them twice. Knows the mark, and
what a cluster without one has that is older than marks are. Must never move anything.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings
from redis.exceptions import RedisError

from apps.kernel.redis import LuaScript
from apps.kernel.redis_cluster_url import is_cluster_url
from apps.kernel.store_keys import SHARD_COUNT, tagged_key

_MARK: Final = tagged_key("gateway", "shards")
# What a cluster has whose only shard this was before there were several.
_ONLY_SHARD: Final = tuple(tagged_key("gateway", name) for name in ("ledger:epoch", "outbox", "workers"))

REMEDY: Final = (
    "Set VALKEY_SHARDS to what the cluster has. To change it, stop every process once the outbox is empty "
    "(`gateway doctor` tells), empty the cluster, and start with the new number."
)

_CLAIM: Final = LuaScript(
    """
    -- KEYS: the mark, and what the only shard of an older cluster has; ARGV: the number of shards to begin with
    local known = redis.call('GET', KEYS[1])
    if known then return tonumber(known) end
    local count = ARGV[1]
    for i = 2, #KEYS do
      if redis.call('EXISTS', KEYS[i]) == 1 then count = '1' end
    end
    redis.call('SET', KEYS[1], count)
    return tonumber(count)
    """
)


_known_to_agree = False


class OtherShards(Exception):
    """The cluster is divided otherwise than this process would."""


def claim() -> int:
    """Return into how many shards the store is divided: as many as this process would where nobody was before it.

    Raises RedisError.
    """
    return int(_CLAIM([_MARK, *_ONLY_SHARD], [SHARD_COUNT])) if is_cluster_url(settings.REDIS_URL) else 1


def require() -> None:
    """Raise OtherShards where the store is divided otherwise. Raises RedisError until that could be told once.

    The mark is written again should the cluster have lost it.
    """
    global _known_to_agree
    try:
        known = claim()
    except RedisError:
        if _known_to_agree:
            return
        raise
    if known != SHARD_COUNT:
        raise OtherShards(f"{difference(known)} {REMEDY}")
    _known_to_agree = True


def difference(known: int) -> str:
    """Return what is wrong, in words."""
    return f"The cluster of REDIS_URL is divided into {known} shards, and VALKEY_SHARDS is {SHARD_COUNT}."
