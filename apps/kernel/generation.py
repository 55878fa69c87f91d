"""Cache invalidation by generation token: a random token for each scope, kept in Redis.

Whoever caches something of a scope keeps the token it was read under and trusts the copy as long as the token stands.
A lost token is replaced by a new one, so a flushed store makes every copy stale, never one wrongly fresh. On a cluster
each shard has a token of the catalog's, for a reservation compares it in the shard of its organization (docs/adr/0217):
the catalog's generation is all of them.
Must never know what is cached.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

import structlog
from django.db import transaction
from redis.exceptions import RedisError

from apps.kernel.ids import random_number
from apps.kernel.redis import LuaScript, client
from apps.kernel.shards import ask_those_there
from apps.kernel.store_keys import SHARD_COUNT, SHARDS, money_key, money_keys, money_pattern, shard_of

log = structlog.get_logger(__name__)

CATALOG = "catalog"
_ORGANIZATION = "org:"
# Between the tokens of several shards, which are one generation.
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
    """Return the Redis keys of a scope's generation: an organization's lies in its shard, the catalog's in each."""
    name, owner = f"gen:{scope}", scope.removeprefix(_ORGANIZATION)
    return money_keys(name) if owner == scope else (money_key(name, shard_of(UUID(owner))),)


@lru_cache(maxsize=8192)
def organization_scope(organization_id: UUID) -> str:
    """Return the scope that covers all of an organization: its plan, projects, keys, rules and guardrails."""
    return f"{_ORGANIZATION}{organization_id}"


def new_generation_token() -> str:
    """Return a new generation token."""
    return f"{random_number():016x}"


def read_generation_token(scope: str) -> str:
    """Return the scope's current generation, making one when there is none. Raises RedisError.

    Of the catalog's, what a shard cannot tell is made up: once that shard answers again, the copy is stale there.
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
    """Return a generation that is known where a shard says that it stands, else what that shard says.

    Raises RedisError.
    """
    return confirm_token(_token_at(keys_of(scope)[shard]), known, shard)


def shard_token(token: str, shard: int) -> str:
    """Return what a shard knows of a generation that all shards have."""
    if SHARD_COUNT == 1:
        return token
    parts = token.split(_BETWEEN)
    # One that was made up while the store could not tell is of no shard.
    return parts[shard] if len(parts) == SHARD_COUNT else token


def confirm_token(told: str, known: str, shard: int) -> str:
    """Return the known generation of all shards where one of them has told the same, else what that one told."""
    return known if told == shard_token(known, shard) else told


def covers(token: str, told: str) -> bool:
    """Return whether what was read under a token is as new as what was told: the same, or what a shard says of it."""
    return told == token or (SHARD_COUNT > 1 and told in token.split(_BETWEEN))


def _token_at(name: str) -> str:
    return str(_READ_OR_MAKE.run_batched([name], [new_generation_token()]))


def bump(scope: str) -> None:
    """Make every copy of the scope stale, at once for readers that ask with every request.

    Without Redis nothing can be told; readers bound the age of their copies for that case.
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
    """Make every copy of every scope stale. Raises RedisError."""
    redis = client()
    for name in redis.scan_iter(match=money_pattern("gen:"), count=1_000):
        redis.delete(name)


def bump_on_commit(*scopes: str) -> None:
    """Bump the scopes when the current transaction commits (now, outside one)."""

    def bump_each() -> None:
        for scope in scopes:
            bump(scope)

    transaction.on_commit(bump_each)
