"""Cache invalidation by generation token: a random token for each scope, kept in Redis.

Whoever caches something of a scope keeps the token it was read under and trusts the copy as long as the token stands.
A lost token is replaced by a new one, so a flushed store makes every copy stale, never one wrongly fresh.
Must never know what is cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from uuid import UUID

import structlog
from django.db import transaction
from redis.exceptions import RedisError

from apps.kernel.ids import random_number
from apps.kernel.redis import client
from apps.kernel.store_keys import money_key

log = structlog.get_logger(__name__)

CATALOG = "catalog"


def key(scope: str) -> str:
    """Return the Redis key of a scope's generation."""
    return money_key(f"gen:{scope}")


@lru_cache(maxsize=8192)
def organization(organization_id: UUID) -> str:
    """Return the scope that covers all of an organization: its plan, projects, keys, rules and guardrails."""
    return f"org:{organization_id}"


def new_generation_token() -> str:
    """Return a new generation token."""
    return f"{random_number():016x}"


def read_generation_token(scope: str) -> str:
    """Return the scope's current generation, making one when there is none. Raises RedisError."""
    redis = client()
    token = redis.get(key(scope))
    if token is None:
        redis.set(key(scope), new_generation_token(), nx=True)
        token = redis.get(key(scope))
    return str(token)


def bump(scope: str) -> None:
    """Make every copy of the scope stale, at once for readers that ask with every request.

    Without Redis nothing can be told; readers bound the age of their copies for that case.
    """
    try:
        client().set(key(scope), new_generation_token())
    except RedisError as error:
        log.warning("generation.not_bumped", scope=scope, error=str(error))


def bump_all() -> None:
    """Make every copy of every scope stale. Raises RedisError."""
    redis = client()
    for name in redis.scan_iter(match=key("*"), count=1_000):
        redis.delete(name)


def bump_on_commit(*scopes: str) -> None:
    """Bump the scopes when the current transaction commits (now, outside one)."""

    def bump_all(names: Iterable[str] = scopes) -> None:
        for name in names:
            bump(name)

    transaction.on_commit(bump_all)
