"""Redis/Valkey configuration checks: is the server fit to hold reservations, limits and records, another the cache?

The server must not evict keys or keep everything in memory only. The product also starts when the server is unreachable
or does not report its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from redis.exceptions import RedisError, ResponseError

from apps.kernel.valkey import shard_count
from apps.kernel.valkey.redis import cache_servers, client, servers
from apps.kernel.valkey.redis_cluster_url import is_cluster_url
from apps.kernel.valkey.store_keys import SHARD_COUNT

_POLICY, _APPEND, _SNAPSHOTS, _MEMORY = "maxmemory-policy", "appendonly", "save", "maxmemory"


def check_store(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Return what is wrong with the store that REDIS_URL names, as Django's system checks do."""
    return (
        [*find_misnamed_cluster(), *find_other_shards()]
        if settings.DEVELOPMENT
        else [*find_store_problems(), *find_cache_problems()]
    )


def find_store_problems() -> list[CheckMessage]:
    """Return what is wrong with the store, whatever the mode; nothing where there is none."""
    if not settings.REDIS_URL:
        return []
    try:
        if misplaced := [*find_misnamed_cluster(), *find_other_shards()]:
            return misplaced
        # Each primary of a cluster is checked; a problem of several is reported once.
        found = {one.id: one for server in servers() for one in _findings(_ask(server))}
    except RedisError:
        # Whether it is there is asked elsewhere, all the time.
        return []
    return list(found.values())


def find_cache_problems() -> list[CheckMessage]:
    """Return what is wrong with the store that CACHE_URL names, whatever the mode; nothing where it does not say."""
    if not settings.CACHE_URL:
        return []
    try:
        own, others = ({str(one.info("server").get("run_id")) for one in all_} for all_ in (cache_servers(), servers()))
        if own & others:
            problem = "Answers and streams that organizations keep share the memory of reservations and records."
            hint = "Set CACHE_URL to a server of its own; until then CACHE_BYTES is the only bound."
            return [Warning(problem, hint=hint, id="gateway.W007")]
        told = [dict(server.config_get(_POLICY, _MEMORY)) for server in cache_servers()]
    except RedisError:
        return []
    if all(str(one.get(_MEMORY)) != "0" and one.get(_POLICY) != "noeviction" for one in told):
        return []
    problem = "The server of CACHE_URL does not evict before it grows."
    hint = "CONFIG SET maxmemory, a quarter above CACHE_BYTES, and maxmemory-policy allkeys-lru."
    return [Warning(problem, hint=hint, id="gateway.W008")]


def find_misnamed_cluster() -> list[CheckMessage]:
    """Return that a cluster's node is named as if it were a server of its own; nothing where it does not say.

    It would refuse what touches the slots of others, and each script whose keys lie in several of them.
    """
    if not settings.REDIS_URL or is_cluster_url(settings.REDIS_URL):
        return []
    try:
        answer: Any = client().info("cluster")
    except RedisError:
        return []
    if not int(answer.get("cluster_enabled", 0)):
        return []
    problem = "The server of REDIS_URL is a node of a cluster, and the URL names a single server."
    hint = "Write redis+cluster://host:port or rediss+cluster://host:port, and set CELERY_BROKER_URL."
    return [Error(problem, hint=hint, id="gateway.E013")]


def find_other_shards() -> list[CheckMessage]:
    """Return that what a cluster keeps is divided otherwise; nothing where it does not say."""
    try:
        known = shard_count.claim()
    except RedisError:
        return []
    if known == SHARD_COUNT:
        return []
    return [Error(shard_count.difference(known), hint=shard_count.REMEDY, id="gateway.E014")]


def _ask(server: Any) -> dict[str, str]:
    """Return what a server says of eviction and persistence; hosted ones do not all say. Raises RedisError."""
    try:
        answer: Any = server.config_get(_POLICY, _APPEND, _SNAPSHOTS)
    except ResponseError:
        answer = {}
    found = {str(name): str(value) for name, value in dict(answer).items()}
    if _POLICY in found and _APPEND in found:
        return found
    try:
        info: Any = server.info()
    except ResponseError:
        info = {}
    if "maxmemory_policy" in info:
        found.setdefault(_POLICY, str(info["maxmemory_policy"]))
    if "aof_enabled" in info:
        # It says whether it appends, and not whether it takes snapshots.
        found.setdefault(_APPEND, "yes" if int(info["aof_enabled"]) else "no")
    return found


def _findings(said: dict[str, str]) -> Iterator[CheckMessage]:
    policy, appends, snapshots = said.get(_POLICY), said.get(_APPEND), said.get(_SNAPSHOTS)
    if policy is None or appends is None:
        yield Warning(
            "The server of REDIS_URL does not say whether it evicts or persists.",
            hint="See to it that maxmemory-policy is noeviction and appendonly is yes.",
            id="gateway.W005",
        )
    if policy not in (None, "noeviction"):
        yield Error(
            f"The server of REDIS_URL evicts ({policy}): reservations, limits and unsettled records would vanish.",
            hint="CONFIG SET maxmemory-policy noeviction, and the same in its configuration.",
            id="gateway.E011",
        )
    if appends == "no" and snapshots == "":
        yield Error(
            "The server of REDIS_URL keeps its data in memory only: records of answered requests would die with it.",
            hint="CONFIG SET appendonly yes, and the same in its configuration.",
            id="gateway.E012",
        )
    elif appends == "no":
        yield Warning(
            "The server of REDIS_URL does not append to a file: it may forget minutes when it is killed.",
            hint="CONFIG SET appendonly yes, and the same in its configuration.",
            id="gateway.W006",
        )
