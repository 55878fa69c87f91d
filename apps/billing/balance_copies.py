"""Resynchronization of balance copies: Redis compared with the database, and repaired.

A copy that is behind is moved forward. One that is ahead says that the database has forgotten what it told: a backup
was restored, or an older replica took over, and a new epoch of the ledger begins. Safe to ask while serving: copies are
read before balances, which move first, so that none is ahead by a moment. Must never move money.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import structlog

from apps.billing import balances, ledger, ledger_epoch
from apps.billing.balances import Balance, Scope
from apps.billing.worker_leases import SUM_HOLDS_LUA
from apps.kernel.ids import find_id
from apps.kernel.redis import LuaScript, client
from apps.kernel.store_keys import by_shard, money_pattern

log = structlog.get_logger(__name__)

# Copies that are compared in one go.
BATCH = 1_000
_SCOPES: tuple[Scope, ...] = ("organization", "key")

_HOLD = LuaScript(
    SUM_HOLDS_LUA
    + """
    -- KEYS: copies. Makes what is held on each what open reservations hold there; returns how many were wrong.
    local sums, wrong = promised(), 0
    for _, name in ipairs(KEYS) do
      local amount = string.format('%.0f', sums[name] or 0)
      if redis.call('EXISTS', name) == 1 and (redis.call('HGET', name, 'held') or '0') ~= amount then
        redis.call('HSET', name, 'held', amount)
        wrong = wrong + 1
      end
    end
    return wrong
    """
)


class DivergentCopy(NamedTuple):
    """A balance, and what its copy says: amount (1e-9 USD), version and epoch."""

    true: Balance
    amount: int
    version: int
    epoch: int

    @property
    def is_ahead(self) -> bool:
        """Whether the copy knows of movements that the database does not, or of others."""
        if self.epoch != self.true.epoch:
            return self.epoch > self.true.epoch
        return self.version > self.true.version or (
            self.version == self.true.version and self.amount != self.true.nanos
        )


class Resynced(NamedTuple):
    """What a comparison of all copies came to.

    `changed` are those whose amount was another; `holds` how many balances had something else held on them than open
    reservations hold. `epoch` is the new one, where copies were ahead.
    """

    compared: int
    changed: list[DivergentCopy]
    holds: int
    epoch: int | None


def resync() -> Resynced:
    """Compare every copy with its balance and make it one again, with what is held on it.

    Raises DatabaseError, RedisError; then it may be repeated.
    """
    present, compared = ledger_epoch.read_epoch(), 0
    began = None
    changed: list[DivergentCopy] = []
    if ledger_epoch.read_epoch_in_redis() > present:
        began = present = _begin_epoch("the store knew a later epoch", instead_of=present)
    for names in batches(scan_copy_keys()):
        strays = find_divergent_copies(names)
        if began is None and (ahead := [one for one in strays if one.is_ahead]):
            began = _begin_instead_of(ahead)
        compared += len(names)
        changed += [one for one in strays if one.amount != one.true.nanos]
        # As they are by now, and of the epoch that may just have begun.
        balances.publish_or_raise([one.true for one in find_divergent_copies(names)])
    if began is not None:
        # Those that agreed before it began are void since.
        for names in batches(scan_copy_keys()):
            balances.publish_or_raise([one.true for one in find_divergent_copies(names)])
    balances.void_epochs_before(began or present)
    holds = sum(int(_HOLD(some, [])) for names in batches(scan_copy_keys()) for some in by_shard(names, str).values())
    done = Resynced(compared, changed, holds, began)
    if changed or holds or began:
        log.warning("balances.resynced", compared=compared, changed=len(changed), holds=holds, epoch=began)
    return done


def repair_copies(suspects: Iterable[Balance]) -> None:
    """Look into balances whose copies knew something newer, and make them copies again. Raises as `resync` does."""
    names = [one.name for one in suspects]
    if not names:
        return
    known, present = ledger_epoch.read_epoch_in_redis(), ledger_epoch.read_epoch()
    if known > present:
        _begin_epoch("the store knew a later epoch", instead_of=present)
    elif ahead := [one for one in find_divergent_copies(names) if one.is_ahead]:
        _begin_instead_of(ahead)
    for scope, identifiers in _by_scope(names).items():
        balances.publish_or_raise(ledger.balances_of(scope, identifiers))


def _begin_instead_of(ahead: Sequence[DivergentCopy]) -> int:
    worst = ahead[0]
    where = f"{worst.true.scope} {worst.true.id}"
    reason = f"{where}: the store knew version {worst.version}, the database {worst.true.version}"
    return _begin_epoch(reason, instead_of=worst.true.epoch)


def _begin_epoch(reason: str, *, instead_of: int) -> int:
    """Begin another epoch, of which every shard is told at once; return the present one."""
    present = ledger_epoch.begin_epoch(reason, instead_of=instead_of)
    balances.void_epochs_before(present)
    return present


def find_divergent_copies(names: Sequence[str]) -> list[DivergentCopy]:
    """Return the balances whose copies are not they; of those that exist."""
    said: dict[tuple[Scope, UUID], tuple[int, int, int]] = {}
    for name, (amount, version, epoch) in zip(names, read_fields(names, "amount", "version", "epoch"), strict=True):
        scope, identifier = parse_copy_key(name)
        if identifier is not None and amount is not None:
            said[scope, identifier] = (int(amount), int(version or 0), int(epoch or 0))
    return [
        DivergentCopy(true, *said[scope, true.id])
        for scope in _SCOPES
        for true in ledger.balances_of(scope, [identifier for of, identifier in said if of == scope])
        if said[scope, true.id] != (true.nanos, true.version, true.epoch)
    ]


def scan_copy_keys() -> Iterator[str]:
    """Yield the names of all copies. Raises RedisError."""
    return (str(name) for name in client().scan_iter(match=money_pattern(balances.COPIES), count=BATCH))


def batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield names, some at a time."""
    left = iter(names)
    while batch := list(islice(left, BATCH)):
        yield batch


def read_fields(names: Sequence[str], *fields: str) -> list[list[str | None]]:
    """Return fields of each copy; None for those that it does not have. Raises RedisError."""
    pipe = client().pipeline(transaction=False)
    for name in names:
        pipe.hmget(name, fields)
    return list(pipe.execute())


def parse_copy_key(name: str) -> tuple[Scope, UUID | None]:
    """Return whose balance a copy is."""
    scope, _, identifier = name.partition(balances.COPIES)[2].partition(":")
    return ("organization" if scope == "organization" else "key"), find_id(identifier)


def _by_scope(names: Iterable[str]) -> dict[Scope, list[UUID]]:
    found: dict[Scope, list[UUID]] = {scope: [] for scope in _SCOPES}
    for scope, identifier in map(parse_copy_key, names):
        if identifier is not None:
            found[scope].append(identifier)
    return found
