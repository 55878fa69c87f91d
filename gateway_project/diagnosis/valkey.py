"""Checks of Valkey or Redis and of the cache: do they answer, and are they fit to hold what they are given?

The store must not evict keys or keep everything in memory only; the cache must evict. Reads only, except that the first
process of a cluster stores the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError, ResponseError

from apps.kernel.store_urls import is_cluster_url
from apps.kernel.valkey import shards
from apps.kernel.valkey.redis import SHARD_COUNT, cache_servers, client, servers, servers_of_money
from gateway_project.diagnosis.check import Diagnosis
from gateway_project.diagnosis.database import compare_clock

_POLICY, _APPEND, _SNAPSHOTS, _MEMORY = "maxmemory-policy", "appendonly", "save", "maxmemory"
# Share of its memory that may be in use.
_FULL, _NEARLY_FULL = 0.95, 0.8
_MEGABYTE = 1024 * 1024


def find_server() -> Iterator[Diagnosis]:
    """Yield whether each server answers, its role, memory and clock."""
    if not settings.REDIS_URL:
        yield Diagnosis.error("valkey", "none is running on this home", "start the server, or set REDIS_URL")
        return
    for one in servers_of_money():
        yield from _examine(one)


def find_cache() -> Iterator[Diagnosis]:
    """Yield whether the cache answers where it has a server of its own."""
    if settings.CACHE_URL != settings.REDIS_URL:
        for one in cache_servers():
            one.ping()
        yield Diagnosis.ok("cache", "answers")


def find_misplaced() -> list[Diagnosis]:
    """Return that REDIS_URL or VALKEY_SHARDS does not fit the kind of store; nothing where the store does not say."""
    return [*_find_misnamed_cluster(), *_find_other_shards()]


def _find_misnamed_cluster() -> Iterator[Diagnosis]:
    """Yield that a cluster's node is named as if it were a server of its own.

    It would refuse what touches the slots of others, and each script whose keys lie in several of them.
    """
    if not settings.REDIS_URL or is_cluster_url(settings.REDIS_URL):
        return
    try:
        answer: Any = client().info("cluster")
    except RedisError:
        return
    if int(answer.get("cluster_enabled", 0)):
        yield Diagnosis.error(
            "valkey",
            "The server of REDIS_URL is a node of a cluster, and the URL names a single server.",
            "Write redis+cluster://host:port or rediss+cluster://host:port, and set CELERY_BROKER_URL.",
            code="gateway.E013",
        )


def _find_other_shards() -> Iterator[Diagnosis]:
    """Yield that the cluster is divided into another number of shards."""
    try:
        known = shards.claim()
    except RedisError:
        return
    if known != SHARD_COUNT:
        yield Diagnosis.error("valkey", shards.difference(known), shards.REMEDY, code="gateway.E014")


def find_unfit() -> list[Diagnosis]:
    """Return how the store would lose data, once for all primaries of a cluster; nothing where it does not answer."""
    if not settings.REDIS_URL:
        return []
    try:
        return list({one.code: one for server in servers() for one in _find_losses(_ask(server))}.values())
    except RedisError:
        # Other checks report that it does not answer.
        return []


def find_unfit_cache() -> Iterator[Diagnosis]:
    """Yield that the cache has no bound or no memory of its own; nothing where it does not say."""
    if not settings.CACHE_URL:
        return
    try:
        own, others = ({str(one.info("server").get("run_id")) for one in all_} for all_ in (cache_servers(), servers()))
        is_shared = bool(own & others)
        told = [] if is_shared else [dict(server.config_get(_POLICY, _MEMORY)) for server in cache_servers()]
    except RedisError:
        return
    if is_shared:
        yield Diagnosis.warning(
            "cache",
            "Answers and streams that organizations keep share the memory of reservations and records.",
            "Set CACHE_URL to a server of its own; until then CACHE_BYTES is the only bound.",
            code="gateway.W007",
        )
    elif any(str(one.get(_MEMORY)) == "0" or one.get(_POLICY) == "noeviction" for one in told):
        yield Diagnosis.warning(
            "cache",
            "The server of CACHE_URL does not evict before it grows.",
            "CONFIG SET maxmemory, a quarter above CACHE_BYTES, and maxmemory-policy allkeys-lru.",
            code="gateway.W008",
        )


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


def _find_losses(said: dict[str, str]) -> Iterator[Diagnosis]:
    policy, appends, snapshots = said.get(_POLICY), said.get(_APPEND), said.get(_SNAPSHOTS)
    if policy is None or appends is None:
        yield Diagnosis.warning(
            "valkey",
            "The server of REDIS_URL does not say whether it evicts or persists.",
            "See to it that maxmemory-policy is noeviction and appendonly is yes.",
            code="gateway.W005",
        )
    if policy not in (None, "noeviction"):
        yield Diagnosis.error(
            "valkey",
            f"The server of REDIS_URL evicts ({policy}): reservations, limits and unsettled records would vanish.",
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration.",
            code="gateway.E011",
        )
    if appends == "no" and snapshots == "":
        yield Diagnosis.error(
            "valkey",
            "The server of REDIS_URL keeps its data in memory only: records of answered requests would die with it.",
            "CONFIG SET appendonly yes, and the same in its configuration.",
            code="gateway.E012",
        )
    elif appends == "no":
        yield Diagnosis.warning(
            "valkey",
            "The server of REDIS_URL does not append to a file: it may forget minutes when it is killed.",
            "CONFIG SET appendonly yes, and the same in its configuration.",
            code="gateway.W006",
        )


def _examine(connected: Any) -> Iterator[Diagnosis]:
    """Yield the findings for one server."""
    connected.ping()
    try:
        info: dict[str, Any] = connected.info()
    except ResponseError:
        # Some who offer Valkey refuse the command.
        info = {}
    version = info.get("valkey_version") or info.get("redis_version") or "of an unknown version"
    yield Diagnosis.ok("valkey", f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version} answers")
    if info.get("role", "master") != "master":
        yield Diagnosis.error("valkey", "it is a replica, which takes no writes", "set REDIS_URL to the primary")
    yield from _memory(info)
    seconds, microseconds = connected.time()
    yield compare_clock("clock", "Valkey's", datetime.fromtimestamp(int(seconds) + int(microseconds) / 1e6, UTC))


def _memory(info: dict[str, Any]) -> Iterator[Diagnosis]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    words = f"{used // _MEGABYTE} MB used"
    if not most:
        yield Diagnosis.ok("valkey memory", f"{words}, no limit set")
        return
    share, words = used / most, f"{words} of {most // _MEGABYTE} MB"
    if share > _FULL:
        yield Diagnosis.error("valkey memory", words, "raise maxmemory: records wait on the disk meanwhile")
    elif share > _NEARLY_FULL:
        yield Diagnosis.warning("valkey memory", words, "raise maxmemory")
    else:
        yield Diagnosis.ok("valkey memory", words)
