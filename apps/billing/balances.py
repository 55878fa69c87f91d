"""Copies of balances in Redis, for the check before a call: an organization's credits, a key's usage.

The ledger owns the truth. A copy carries the ledger's version and only ever moves forward, so late or repeated
publications are harmless. Beside the amount lies what is held by reservations. Amounts are whole 1e-9 USD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal
from uuid import UUID

import structlog
from redis.exceptions import RedisError

from apps.kernel.money import nanos_down, nanos_up
from apps.kernel.redis import LuaScript

log = structlog.get_logger(__name__)

Scope = Literal["organization", "key"]
# How the keys of credit balances begin.
CREDITS = "balance:organization:"

_PUBLISH = LuaScript(
    """
    for i = 1, #KEYS do
      local amount, version = ARGV[i * 2 - 1], tonumber(ARGV[i * 2])
      local known = redis.call('HGET', KEYS[i], 'version')
      if not known or tonumber(known) < version then
        redis.call('HSET', KEYS[i], 'amount', amount, 'version', ARGV[i * 2])
      end
    end
    """
)


@dataclass(frozen=True, slots=True)
class Balance:
    """An organization's credits or a key's usage in USD, as of the ledger's `version`."""

    scope: Scope
    id: UUID
    amount: Decimal
    version: int

    @property
    def nanos(self) -> int:
        """The amount in 1e-9 USD, rounded to the side that spends less."""
        return nanos_down(self.amount) if self.scope == "organization" else nanos_up(self.amount)


@lru_cache(maxsize=8192)
def key(scope: Scope, identifier: UUID) -> str:
    """Return the Redis key of a balance's copy."""
    return f"balance:{scope}:{identifier}"


def publish(balances: Sequence[Balance]) -> None:
    """Move the copies forward. Call after the ledger's transaction has committed.

    Without Redis there is nothing to move: a missing copy is read from the database on next use, and a stale one is
    moved by the next settlement.
    """
    try:
        put(balances)
    except RedisError as error:
        log.warning("balances.not_published", count=len(balances), error=str(error))


def put(balances: Sequence[Balance]) -> None:
    """Move the copies forward. Raises RedisError."""
    if balances:
        _PUBLISH(
            [key(balance.scope, balance.id) for balance in balances],
            [text for balance in balances for text in (balance.nanos, balance.version)],
        )
