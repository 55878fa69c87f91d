"""Policy cache: one copy per key and worker, read once for all who ask, renewed early, served stale in outages.

A copy is trusted for MAX_AGE. Past that it is served only while the database is known to be away, up to
POLICY_MAX_STALE; one whose generation has passed never (docs/adr/0088).
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import structlog
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.gateway.metrics import STALE_POLICIES, add
from apps.kernel.concurrency.background import run_in_background
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.errors import Overloaded, Unauthenticated
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.organizations.credentials.management_keys import is_management_key

log = structlog.get_logger(__name__)

# Seconds that a copy is trusted without asking the database, whatever its generation says: bounds what a lost
# generation can cost. Served beyond it only while the database is away.
MAX_AGE = 60.0
# Seconds after which a copy that is in use is read again in the background, and between two attempts.
RENEWED_AFTER, RENEWED_AGAIN_AFTER = 48.0, 5.0
# Seconds after which a copy is read again where the store cannot confirm its generation.
DOUBTED_AFTER = 1.0
# Copies kept by a process, and tokens that are known to be refused; the least recently used goes first.
MAX_POLICIES, MAX_REFUSALS = 10_000, 10_000
# Seconds for which an unknown token is refused without a query: a key created meanwhile works that much later, and only
# if its token was guessed before.
UNKNOWN_FOR = 1.0
# Seconds that others wait for the one who reads.
PATIENCE = 10.0
# The `Retry-After` for a client, in seconds.
RETRY_AFTER = 2.0
INVALID_KEY = "Missing or invalid API key"
_NEEDS_API_KEY = "This is a management key; model requests need an API key (docs/management-keys.md)"
_MAX_STALE = CachedSetting("POLICY_MAX_STALE")


class CacheablePolicy(Protocol):
    """The part of a policy that the cache reads."""

    @property
    def organization_id(self) -> UUID: ...
    @property
    def read_at(self) -> float: ...
    @property
    def is_period_over(self) -> bool: ...
    @property
    def is_unusable(self) -> bool: ...
    def is_current(self) -> bool: ...


class NoLongerValid(Exception):
    """No key has the token, or the key is disabled: then `organization_id` and its generation are known."""

    def __init__(self, organization_id: UUID | None = None, generation_token: str | None = None) -> None:
        super().__init__()
        self.organization_id, self.generation_token = organization_id, generation_token
        self.at = time.monotonic()

    @property
    def holds(self) -> bool:
        """Whether nothing has changed since, as far as is known."""
        age = time.monotonic() - self.at
        if self.organization_id is None or age <= UNKNOWN_FOR:
            return age <= UNKNOWN_FOR
        try:
            return (
                age <= MAX_AGE
                and generation.read_generation_token(generation.organization_scope(self.organization_id))
                == self.generation_token
            )
        except RedisError:
            return False


Policy = TypeVar("Policy", bound=CacheablePolicy)


class _Copy(Generic[Policy]):
    """A policy, and when to read it again in the background."""

    __slots__ = ("policy", "renew_at", "trusted_until")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.renew_at = policy.read_at + RENEWED_AFTER
        self.trusted_until = policy.read_at + MAX_AGE


class PolicyCache(Generic[Policy]):
    """The copies of one process. `read` reads a token's policy from the database, given its organization's id where
    that is known already; it raises NoLongerValid and DatabaseError."""

    def __init__(self, read: Callable[[str, UUID | None], Policy]) -> None:
        self._read = read
        self._copies: OrderedDict[bytes, _Copy[Policy]] = OrderedDict()
        self._refusals: OrderedDict[bytes, NoLongerValid] = OrderedDict()
        self._flights: SingleFlight[bytes, Policy] = SingleFlight(PATIENCE)
        # The cache key of a token's policy: unknown outside of this process, at a third of the cost of the stored
        # digest.
        self._key = secrets.token_bytes(32)

    def find(self, token: str) -> Policy:
        """Return a token's policy. Raises Unauthenticated, and Overloaded when nothing can be asked."""
        cache_key = self._cache_key(token)
        copy = self._copies.get(cache_key)
        if copy is not None:
            policy, now = copy.policy, time.monotonic()
            if policy.is_unusable and not policy.is_current():
                self._drop(cache_key, copy)
            elif now <= copy.trusted_until and not policy.is_period_over:
                self._copies.move_to_end(cache_key)
                if now >= copy.renew_at:
                    self._renew(token, cache_key, copy)
                return policy
        return self._find_anew(token, cache_key)

    def peek(self, token: str) -> Policy | None:
        """Return the copy, however old, without a query; None where there is none."""
        copy = self._copies.get(self._cache_key(token))
        return None if copy is None else copy.policy

    def invalidate(self, token: str, known: Policy | None = None) -> None:
        """Drop the copy: its generation has passed. With `known`, only that copy: another request may have read a newer
        one since."""
        cache_key = self._cache_key(token)
        copy = self._copies.get(cache_key)
        if copy is not None and (known is None or copy.policy is known):
            self._drop(cache_key, copy)

    def distrust(self, token: str, known: Policy) -> None:
        """Let a copy that the store cannot confirm expire once it is a second old; kept for a database outage."""
        copy = self._copies.get(self._cache_key(token))
        if copy is not None and copy.policy is known and time.monotonic() - known.read_at > DOUBTED_AFTER:
            copy.trusted_until = 0.0

    def forget_all(self) -> None:
        """Drop every copy."""
        self._copies.clear()
        self._refusals.clear()

    def _cache_key(self, token: str) -> bytes:
        return blake2b(token.encode(), digest_size=32, key=self._key).digest()

    def _drop(self, cache_key: bytes, copy: _Copy[Policy]) -> None:
        if self._copies.get(cache_key) is copy:
            del self._copies[cache_key]

    def _find_anew(self, token: str, cache_key: bytes) -> Policy:
        """Read the policy (single-flight); serve the stale copy, if there is one, when the database is away."""
        refusal = self._refusals.get(cache_key)
        if refusal is not None and refusal.holds:
            raise _refuse(token)
        copy = self._copies.get(cache_key)
        if copy is not None and database.is_away() and self._may_serve(copy):
            return self._serve_stale(copy)
        try:
            return self._read_once(token, cache_key, copy)
        except NoLongerValid as error:
            raise _refuse(token) from error
        except (DatabaseError, TimeoutError) as error:
            # Not a copy that another request has meanwhile found to be of an earlier generation.
            if copy is not None and self._copies.get(cache_key) is copy and self._may_serve(copy):
                return self._serve_stale(copy)
            raise Overloaded(
                "The gateway cannot check API keys right now; try again shortly", retry_after=RETRY_AFTER
            ) from error

    def _may_serve(self, copy: _Copy[Policy]) -> bool:
        return time.monotonic() - copy.policy.read_at <= max(MAX_AGE, float(_MAX_STALE.value))

    def _serve_stale(self, copy: _Copy[Policy]) -> Policy:
        add(STALE_POLICIES)
        return copy.policy

    def _renew(self, token: str, cache_key: bytes, copy: _Copy[Policy]) -> None:
        """Read a copy that is about to expire again in the background; no request waits for it."""
        copy.renew_at = time.monotonic() + RENEWED_AGAIN_AFTER
        if database.is_away() or self._flights.is_under_way(cache_key):
            return

        def renew() -> None:
            try:
                self._read_once(token, cache_key, copy)
            except NoLongerValid:
                log.info("policy.ended", organization=str(copy.policy.organization_id))
            except Exception as error:  # noqa: BLE001 - the copy goes on serving until it expires
                log.warning("policy.not_renewed", error=type(error).__name__)

        run_in_background(renew)

    def _read_once(self, token: str, cache_key: bytes, copy: _Copy[Policy] | None) -> Policy:
        """Read the policy and cache it, once for all concurrent requests."""

        def read() -> Policy:
            try:
                policy = self._read(token, None if copy is None else copy.policy.organization_id)
            except NoLongerValid as refusal:
                self._copies.pop(cache_key, None)
                _store_bounded(self._refusals, cache_key, refusal, MAX_REFUSALS)
                raise
            self._refusals.pop(cache_key, None)
            _store_bounded(self._copies, cache_key, _Copy(policy), MAX_POLICIES)
            return policy

        return self._flights.run(cache_key, read)


Value = TypeVar("Value")


def _store_bounded(kept: OrderedDict[bytes, Value], cache_key: bytes, value: Value, most: int) -> None:
    kept[cache_key] = value
    kept.move_to_end(cache_key)
    while len(kept) > most:
        kept.popitem(last=False)


def _refuse(token: str) -> Unauthenticated:
    return Unauthenticated(_NEEDS_API_KEY if is_management_key(token) else INVALID_KEY)
