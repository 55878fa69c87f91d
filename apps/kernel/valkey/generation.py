"""Cache invalidation by generation token: a random token for each scope, stored in Redis.

A cached copy keeps the token that it was read under and is valid as long as the token is unchanged. A lost token is
replaced by a new one, so a flushed store makes every copy stale, never wrongly fresh. In a cluster each shard has its
own token of the catalog, because a reservation compares it in the shard of its organization (docs/adr/0217); the
catalog's generation is all of them together.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

import structlog
from django.db import transaction
from redis.exceptions import RedisError

from apps.kernel.ids import random_number
from apps.kernel.valkey.redis import (
    SHARD_COUNT,
    SHARDS,
    LuaScript,
    client,
    money_key,
    money_keys,
    money_pattern,
    shard_of,
)
from apps.kernel.valkey.shards import ask_those_there

log = structlog.get_logger(__name__)

CATALOG = "catalog"
_ORGANIZATION = "org:"
# Separates the tokens of several shards, which form one generation.
_BETWEEN = ","
# Returns a token, made where there is none. Refused requests ask for it too, so it is one cheap batched round trip.
_READ_OR_MAKE = LuaScript(
    """
    local token = redis.call('GET', KEYS[1])
    if token then return token end
    redis.call('SET', KEYS[1], ARGV[1])
    return ARGV[1]
    """
)


@lru_cache(maxsize=8192)
def keys_of(scope: str) -> tuple[str, ...]:
    """Return the Redis keys of a scope's generation: an organization's is in its shard, the catalog's in each."""
    name, owner = f"gen:{scope}", scope.removeprefix(_ORGANIZATION)
    return money_keys(name) if owner == scope else (money_key(name, shard_of(UUID(owner))),)


@lru_cache(maxsize=8192)
def organization_scope(organization_id: UUID) -> str:
    """Return the scope of all data of an organization: plan, projects, keys, rules and guardrails."""
    return f"{_ORGANIZATION}{organization_id}"


def new_generation_token() -> str:
    """Return a new generation token."""
    return f"{random_number():016x}"


def read_generation_token(scope: str) -> str:
    """Return the scope's current generation, creating it if needed. Raises RedisError.

    If a shard does not answer, a token is made up in its place: the copy is then stale once the shard is back.
    """
    names = keys_of(scope)
    if len(names) == 1:
        return _token_at(names[0])
    told, failure = ask_those_there(lambda shard: (shard, _token_at(names[shard])))
    if failure is not None and not told:
        raise failure
    tokens = dict(told)
    return _BETWEEN.join(tokens.get(shard) or new_generation_token() for shard in SHARDS)


def check_token(scope: str, known: str, shard: int) -> str:
    """Return the known generation if a shard confirms it, else the shard's own token.

    Raises RedisError.
    """
    return confirm_token(_token_at(keys_of(scope)[shard]), known, shard)


def shard_token(token: str, shard: int) -> str:
    """Return a shard's part of a generation of all shards."""
    if SHARD_COUNT == 1:
        return token
    parts = token.split(_BETWEEN)
    # A token that was made up without the store belongs to no shard.
    return parts[shard] if len(parts) == SHARD_COUNT else token


def confirm_token(told: str, known: str, shard: int) -> str:
    """Return the known generation of all shards if one of them has reported its part, else the reported token."""
    return known if told == shard_token(known, shard) else told


def covers(token: str, told: str) -> bool:
    """Return whether a copy read under `token` is as new as `told`: the same, or one shard's part of it."""
    return told == token or (SHARD_COUNT > 1 and told in token.split(_BETWEEN))


def _token_at(name: str) -> str:
    return str(_READ_OR_MAKE.run_batched([name], [new_generation_token()]))


def bump(scope: str) -> None:
    """Invalidate every copy of the scope, at once for readers that compare with every request.

    Without Redis no reader can be notified; readers limit the age of their copies for that case.
    """
    names = keys_of(scope)
    if len(names) > 1:
        failure = ask_those_there(lambda shard: client().set(names[shard], new_generation_token()))[1]
    else:
        failure = _bump_at(names[0])
    if failure is not None:
        log.warning("generation.not_bumped", scope=scope, error=str(failure))


def _bump_at(name: str) -> RedisError | None:
    try:
        client().set(name, new_generation_token())
    except RedisError as error:
        return error
    return None


def bump_all() -> None:
    """Invalidate every copy of every scope. Raises RedisError."""
    redis = client()
    for name in redis.scan_iter(match=money_pattern("gen:"), count=1_000):
        redis.delete(name)


def bump_on_commit(*scopes: str) -> None:
    """Bump the scopes when the current transaction commits (immediately, outside of one)."""

    def bump_each() -> None:
        for scope in scopes:
            bump(scope)

    transaction.on_commit(bump_each)
