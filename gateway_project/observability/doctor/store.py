"""Checks of Valkey and the cache: does it answer, is it a primary, of the named kind, durable, does it evict?

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from redis.exceptions import ResponseError

from apps.kernel.valkey.redis import cache_servers, servers_of_money
from gateway_project.observability.doctor.database import clock
from gateway_project.observability.doctor.diagnosis import Diagnosis, doubtful, well, wrong
from gateway_project.observability.redis_checks import find_cache_problems, find_store_problems

# Share of its memory that may be in use.
_FULL, _NEARLY_FULL = 0.95, 0.8
_MEGABYTE = 1024 * 1024


def server() -> Iterator[Diagnosis]:
    """Yield whether it answers; then what of it is not as it should be."""
    if not settings.REDIS_URL:
        yield wrong("valkey", "none is running on this home", "start the server, or set REDIS_URL")
        return
    for one in servers_of_money():
        yield from _examine(one)
    for problem in find_store_problems():
        make = wrong if problem.is_serious() else doubtful
        yield make("valkey", problem.msg, problem.hint or "")


def cache() -> Iterator[Diagnosis]:
    """Yield whether the cache answers where it has a server of its own; then what of it is not as it should be."""
    if settings.CACHE_URL != settings.REDIS_URL:
        for one in cache_servers():
            one.ping()
        yield well("cache", "answers")
    for problem in find_cache_problems():
        yield doubtful("cache", problem.msg, problem.hint or "")


def _examine(connected: Any) -> Iterator[Diagnosis]:
    """Yield the findings for one server."""
    connected.ping()
    try:
        info: dict[str, Any] = connected.info()
    except ResponseError:
        # Some who offer Valkey refuse the command.
        info = {}
    version = info.get("valkey_version") or info.get("redis_version") or "of an unknown version"
    yield well("valkey", f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version} answers")
    if info.get("role", "master") != "master":
        yield wrong("valkey", "it is a replica, which takes no writes", "set REDIS_URL to the primary")
    yield from _memory(info)
    seconds, microseconds = connected.time()
    yield clock("clock", "Valkey's", datetime.fromtimestamp(int(seconds) + int(microseconds) / 1e6, UTC))


def _memory(info: dict[str, Any]) -> Iterator[Diagnosis]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    words = f"{used // _MEGABYTE} MB used"
    if not most:
        yield well("valkey memory", f"{words}, no limit set")
        return
    share, words = used / most, f"{words} of {most // _MEGABYTE} MB"
    if share > _FULL:
        yield wrong("valkey memory", words, "raise maxmemory: records wait on the disk meanwhile")
    elif share > _NEARLY_FULL:
        yield doubtful("valkey memory", words, "raise maxmemory")
    else:
        yield well("valkey memory", words)
