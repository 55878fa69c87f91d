"""Balance copies in Redis, for the check before a call: an organization's credits, a key's usage.

The ledger owns the truth. A copy carries the ledger's epoch and version: within an epoch it only ever moves forward, so
late or repeated publications are harmless, and a copy of another epoch is no copy (docs/adr/0085). Beside the amount
lies what is held by reservations. Amounts are whole 1e-9 USD.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Final, Literal
from uuid import UUID

import structlog
from redis.exceptions import RedisError

from apps.billing.worker_leases import SUM_HOLDS_LUA
from apps.kernel.money import nanos_down, nanos_up
from apps.kernel.redis import LuaScript
from apps.kernel.shards import ask_each
from apps.kernel.store_keys import SHARD_COUNT, by_shard, money_key, money_keys, shard_of

log = structlog.get_logger(__name__)

Scope = Literal["organization", "key"]
# How the keys of balances begin, behind their shard; and those of credits and of what keys have used among them.
COPIES = "balance:"
CREDITS, USAGE = f"{COPIES}organization:", f"{COPIES}key:"
# By shard: the epoch that copies must be of to count, and the copies that moved last, newest first.
EPOCH: Final = "ledger:epoch"
EPOCHS, MOVED = money_keys(EPOCH), money_keys("ledger:moved")
# Copies that are remembered as having moved last.
MOST_MOVED = 500

_PUBLISH = LuaScript(
    SUM_HOLDS_LUA
    + f"""
    -- KEYS: the ledger's epoch, the copies that moved last, then copies; ARGV: each one's amount, version and epoch
    -- Returns the places, from 0, of those that say something older than what is known.
    local current = redis.call('GET', KEYS[1])
    local refused, moved = {{}}, false
    for i = 3, #KEYS do
      local at = (i - 3) * 3
      local amount, version, epoch = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
      if not current or tonumber(epoch) > tonumber(current) then
        -- From here on every copy of an earlier epoch is void.
        redis.call('SET', KEYS[1], epoch)
        current = epoch
      end
      local known = redis.call('HMGET', KEYS[i], 'amount', 'version', 'epoch', 'held')
      if epoch ~= current then
        refused[#refused + 1] = i - 3
      elseif not known[1] or known[3] ~= epoch then
        redis.call('HSET', KEYS[i], 'amount', amount, 'version', version, 'epoch', epoch)
        -- What was held went with a copy that the store has dropped, or was given back to nothing.
        if not known[1] then
          local held = string.format('%.0f', promised(KEYS[i])[KEYS[i]] or 0)
          if held ~= (known[4] or '0') then redis.call('HSET', KEYS[i], 'held', held) end
        end
      elseif tonumber(known[2]) < tonumber(version) then
        redis.call('HSET', KEYS[i], 'amount', amount, 'version', version)
        redis.call('LPUSH', KEYS[2], KEYS[i])
        moved = true
      elseif known[2] ~= version or known[1] ~= amount then
        refused[#refused + 1] = i - 3
      end
    end
    if moved then redis.call('LTRIM', KEYS[2], 0, {MOST_MOVED - 1}) end
    return refused
    """
)


_BEGIN = LuaScript(
    """
    local known = redis.call('GET', KEYS[1])
    if not known or tonumber(known) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
    """
)


@dataclass(frozen=True, slots=True)
class Balance:
    """An organization's credits or a key's usage in USD, as of the ledger's `version` in its `epoch`.

    `organization_id` is whose key it is.
    """

    scope: Scope
    id: UUID
    amount: Decimal
    version: int
    epoch: int = field(default=0, compare=False)
    organization_id: UUID | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The Redis key of its copy."""
        return key(self.scope, self.id, self.organization_id)

    @property
    def nanos(self) -> int:
        """The amount in 1e-9 USD, rounded to the side that spends less."""
        return nanos_down(self.amount) if self.scope == "organization" else nanos_up(self.amount)


@lru_cache(maxsize=8192)
def key(scope: Scope, identifier: UUID, organization_id: UUID | None = None) -> str:
    """Return the Redis key of a balance's copy, which lies in the shard of its organization.

    Of a key that is to be told wherever there are several. Raises ValueError.
    """
    owner = identifier if scope == "organization" else organization_id
    if owner is None and SHARD_COUNT > 1:
        raise ValueError("A key's balance lies in the shard of its organization, which was not told")
    return money_key(f"{COPIES}{scope}:{identifier}", 0 if owner is None else shard_of(owner))


def is_of_credits(name: str) -> bool:
    """Return whether a copy, by its Redis key, is of an organization's credits, and not of what a key has used."""
    return CREDITS in name


def publish(balances: Sequence[Balance]) -> None:
    """Move the copies forward. Call after the ledger's transaction has committed.

    Without Redis there is nothing to move: a missing copy is read from the database on next use, and a stale one is
    moved by the next settlement.
    """
    try:
        publish_or_raise(balances)
    except RedisError as error:
        log.warning("balances.not_published", count=len(balances), error=str(error))


def void_epochs_before(epoch: int) -> None:
    """Let copies of earlier epochs count for nothing. Raises RedisError."""
    ask_each(lambda shard: _BEGIN([EPOCHS[shard]], [epoch]))


def publish_or_raise(balances: Sequence[Balance]) -> list[Balance]:
    """Move the copies forward; return the balances whose copies know something newer. Raises RedisError.

    That is so where another was quicker, and where the database has forgotten what it told before: whoever can ask it
    finds out which (`balance_copies.mend`).
    """
    refused: list[Balance] = []
    for shard, some in by_shard(balances, _name_of).items():
        places = _PUBLISH(
            [EPOCHS[shard], MOVED[shard], *map(_name_of, some)],
            [text for balance in some for text in (balance.nanos, balance.version, balance.epoch)],
        )
        refused += [some[place] for place in places]
    return refused


_name_of = attrgetter("name")
