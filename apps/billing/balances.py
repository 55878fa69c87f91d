"""Balance copies in Redis, checked before each call: an organization's credits, a key's usage, counters of limits.

The ledger is the source of truth. A copy carries the ledger's epoch and version: within an epoch versions only
increase, so late or repeated updates are harmless, and copies of other epochs are ignored (docs/adr/0085). Each copy
also has the sum of its reservations. Amounts are whole 1e-9 USD.
"""

from __future__ import annotations

import time
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
from apps.kernel.valkey.redis import SHARD_COUNT, LuaScript, by_shard, money_key, money_keys, shard_of
from apps.kernel.valkey.shards import ask_each

log = structlog.get_logger(__name__)

Scope = Literal["organization", "key", "limit"]
# Prefix of balance keys, after the shard; and the prefixes for credits, for key usage and for counters of limits.
COPIES = "balance:"
CREDITS, USAGE, COUNTERS = f"{COPIES}organization:", f"{COPIES}key:", f"{COPIES}limit:"
# Seconds for which the copy of a counter outlives its window: longer than any request that began in it.
_COUNTER_SLACK = 2 * 86_400
# By shard: the current epoch, and the most recently changed copies, newest first.
EPOCH: Final = "ledger:epoch"
EPOCHS, MOVED = money_keys(EPOCH), money_keys("ledger:moved")
# Number of recently changed copies that are remembered.
MAX_MOVED = 500

_PUBLISH = LuaScript(
    SUM_HOLDS_LUA
    + f"""
    -- KEYS: the ledger's epoch, the copies that moved last, then copies; ARGV: each one's amount, version and epoch,
    --       and the second of its expiry or ''
    -- Returns the indexes, from 0, of balances that are older than the copies.
    local current = redis.call('GET', KEYS[1])
    local refused, moved = {{}}, false
    for i = 3, #KEYS do
      local at = (i - 3) * 4
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
        -- The held amount was lost with a copy that the store dropped, or was released without a copy.
        if not known[1] then
          local held = string.format('%.0f', promised(KEYS[i])[KEYS[i]] or 0)
          if held ~= (known[4] or '0') then redis.call('HSET', KEYS[i], 'held', held) end
          if ARGV[at + 4] ~= '' then redis.call('EXPIREAT', KEYS[i], ARGV[at + 4]) end
        end
      elseif tonumber(known[2]) < tonumber(version) then
        redis.call('HSET', KEYS[i], 'amount', amount, 'version', version)
        redis.call('LPUSH', KEYS[2], KEYS[i])
        moved = true
      elseif known[2] ~= version or known[1] ~= amount then
        refused[#refused + 1] = i - 3
      end
    end
    if moved then redis.call('LTRIM', KEYS[2], 0, {MAX_MOVED - 1}) end
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

    The counter of a limit, too: one that counts requests or tokens has 1e-9 for each. `organization_id` is the key's or
    the limit's organization, `ends_at` the end of the counter's window in seconds since 1970.
    """

    scope: Scope
    id: UUID
    amount: Decimal
    version: int
    epoch: int = field(default=0, compare=False)
    organization_id: UUID | None = field(default=None, compare=False)
    ends_at: int | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The Redis key of its copy."""
        return key(self.scope, self.id, self.organization_id)

    @property
    def nanos(self) -> int:
        """The amount in 1e-9 USD, rounded against the spender."""
        return nanos_down(self.amount) if self.scope == "organization" else nanos_up(self.amount)

    @property
    def expires_at(self) -> int | str:
        """The second at which the copy expires; empty: never. A request may have begun long ago, such as a batch's."""
        return "" if self.ends_at is None else max(self.ends_at, int(time.time())) + _COUNTER_SLACK


@lru_cache(maxsize=8192)
def key(scope: Scope, identifier: UUID, organization_id: UUID | None = None) -> str:
    """Return the Redis key of a balance's copy, in the shard of its organization.

    A key's or a limit's balance needs `organization_id` if there are several shards. Raises ValueError.
    """
    owner = identifier if scope == "organization" else organization_id
    if owner is None and SHARD_COUNT > 1:
        raise ValueError("The balance is in the shard of its organization, which was not given")
    return money_key(f"{COPIES}{scope}:{identifier}", 0 if owner is None else shard_of(owner))


def is_of_credits(name: str) -> bool:
    """Return whether a copy's Redis key is for an organization's credits, not for usage."""
    return CREDITS in name


def publish(balances: Sequence[Balance]) -> None:
    """Update the copies. Call after the ledger's transaction has committed.

    If Redis is down, nothing is lost: a missing copy is read from the database on next use, and a stale one is updated
    by the next settlement.
    """
    try:
        publish_or_raise(balances)
    except RedisError as error:
        log.warning("balances.not_published", count=len(balances), error=str(error))


def void_epochs_before(epoch: int) -> None:
    """Invalidate copies of earlier epochs. Raises RedisError."""
    ask_each(lambda shard: _BEGIN([EPOCHS[shard]], [epoch]))


def publish_or_raise(balances: Sequence[Balance]) -> list[Balance]:
    """Update the copies; return the balances whose copies have a newer version. Raises RedisError.

    This happens if another process was faster, or if the database lost changes; `balance_copies.repair_copies` finds
    out which.
    """
    refused: list[Balance] = []
    for shard, some in by_shard(balances, _name_of).items():
        places = _PUBLISH(
            [EPOCHS[shard], MOVED[shard], *map(_name_of, some)],
            [text for balance in some for text in (balance.nanos, balance.version, balance.epoch, balance.expires_at)],
        )
        refused += [some[place] for place in places]
    return refused


_name_of = attrgetter("name")
