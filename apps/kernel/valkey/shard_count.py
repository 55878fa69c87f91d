"""Shard count: the number of shards of a cluster, stored in the cluster and compared at startup.

Processes with different numbers would have separate balances, and spend them twice.
"""

from __future__ import annotations

from typing import Final

from django.conf import settings
from redis.exceptions import RedisError

from apps.kernel.valkey.redis import LuaScript
from apps.kernel.valkey.redis_cluster_url import is_cluster_url
from apps.kernel.valkey.store_keys import SHARD_COUNT, tagged_key

_MARK: Final = tagged_key("gateway", "shards")
# Keys of a cluster from before there were several shards, with a single one.
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
    """The cluster has another number of shards than this process."""


def claim() -> int:
    """Return the number of shards of the store; the first process sets it.

    Raises RedisError.
    """
    return int(_CLAIM([_MARK, *_ONLY_SHARD], [SHARD_COUNT])) if is_cluster_url(settings.REDIS_URL) else 1


def require() -> None:
    """Raise OtherShards if the store has another number of shards. Raises RedisError until it was checked once.

    The number is written again if the cluster has lost it.
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
    """Return a description of the difference."""
    return f"The cluster of REDIS_URL is divided into {known} shards, and VALKEY_SHARDS is {SHARD_COUNT}."
