"""Shards of the store: calls to each of them, and the stored number of shards, which is compared at startup.

A shard that is down does not affect the others. Processes with different numbers would have separate balances, and
spend them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from django.conf import settings
from redis.exceptions import RedisError

from apps.kernel.store_urls import is_cluster_url
from apps.kernel.valkey.redis import SHARD_COUNT, SHARDS, LuaScript, client, money_key, tagged_key
from apps.kernel.valkey.redis_cluster import Cluster

Answer = TypeVar("Answer")


def ask_each(ask: Callable[[int], Answer]) -> list[Answer]:
    """Return the answer of each shard after calling all. Raises the first RedisError, after that."""
    answers, failure = ask_those_there(ask)
    if failure is not None:
        raise failure
    return answers


def ask_those_there(ask: Callable[[int], Answer]) -> tuple[list[Answer], RedisError | None]:
    """Return the answers of the shards that answer, and the first error of the others.

    Other shards of a failed server are skipped: a hanging server costs one timeout.
    """
    if SHARD_COUNT == 1:
        try:
            return [ask(0)], None
        except RedisError as error:
            return [], error
    answers: list[Answer] = []
    failure: RedisError | None = None
    failed: set[str] = set()
    for shard in SHARDS:
        server = ""
        try:
            server = _server_of(shard)
            if server not in failed:
                answers.append(ask(shard))
        except RedisError as error:
            failed.add(server)
            failure = failure or error
    return answers, failure


def _server_of(shard: int) -> str:
    """Return the name of a shard's server, as far as this process knows. Raises RedisError."""
    known: Any = client()
    return str(known.server_of(money_key("", shard)).name) if isinstance(known, Cluster) else ""


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
