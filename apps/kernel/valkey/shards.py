"""Calls every shard of the store; a shard that is down does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from redis.exceptions import RedisError

from apps.kernel.valkey.redis import client
from apps.kernel.valkey.redis_cluster import Cluster
from apps.kernel.valkey.store_keys import SHARD_COUNT, SHARDS, money_key

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
