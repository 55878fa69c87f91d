"""Copies of balances in Redis, compared with the database and repaired, and the ledger epoch, which voids them.

A copy that is behind is updated. A copy that is ahead means that the database lost changes, because a backup was
restored or an older replica took over: a new epoch of the ledger begins. Versions are issued a second time then, so
copies carry the epoch too, and copies of another epoch are void (docs/adr/0085). A replaced or restarted Valkey server
may hold older data, and one that evicts keys may lack the notes of reservations that balances still hold: the watch in
a settling process notices. Safe while serving: copies are read before balances, and balances change first, so no copy
looks ahead because of timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import Max

from apps.billing import balances, ledger
from apps.billing.balances import EPOCHS, Balance, Scope
from apps.billing.models import LedgerEpoch
from apps.billing.worker_leases import SUM_HOLDS_LUA
from apps.kernel.ids import find_id
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import LuaScript, ServerState, by_shard, client, money_pattern, read_server_state
from apps.kernel.valkey.shards import ask_each


def read_epoch() -> int:
    """Return the database's epoch. Raises DatabaseError."""
    return int(LedgerEpoch.objects.aggregate(latest=Max("number"))["latest"] or 0)


def read_epochs_in_redis() -> list[int]:
    """Return the current epoch in each shard; 0 if nothing was published. Raises RedisError."""
    return ask_each(lambda shard: int(client().get(EPOCHS[shard]) or 0))


def read_epoch_in_redis() -> int:
    """Return the latest epoch of any shard. Raises RedisError."""
    return max(read_epochs_in_redis())


def begin_epoch(reason: str, *, instead_of: int) -> int:
    """Begin a new epoch in place of `instead_of`, unless another process did; return the current one.

    It is higher than any epoch in database and store. Policies and the catalog came from the same database, so they are
    invalidated as well. Raises DatabaseError, RedisError.
    """
    known = read_epoch_in_redis()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE billing_ledgerepoch IN SHARE ROW EXCLUSIVE MODE")
        if (present := read_epoch()) != instead_of:
            return present
        number = max(present + 1, known + 1, time.time_ns() // 1000)
        LedgerEpoch.objects.create(number=number, reason=reason)
    log.error("ledger.epoch_began", epoch=number, instead_of=instead_of, reason=reason)
    generation.bump_all()
    return number


log = structlog.get_logger(__name__)

# Copies compared in one batch.
BATCH = 1_000
_SCOPES: tuple[Scope, ...] = ("organization", "key", "limit")

_HOLD = LuaScript(
    SUM_HOLDS_LUA
    + """
    -- KEYS: copies. Sets the held amount of each to the sum of its open reservations; returns how many were wrong.
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
    """A balance and its differing copy: amount (1e-9 USD), version and epoch."""

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
    """The result of comparing all copies.

    `changed` are the copies with a different amount; `holds` is the number of balances whose held amount differed from
    their open reservations. `epoch` is the new epoch, if copies were ahead.
    """

    compared: int
    changed: list[DivergentCopy]
    holds: int
    epoch: int | None


def resync() -> Resynced:
    """Compare every copy with its balance and repair differences, including the held amounts.

    Raises DatabaseError, RedisError; it may be repeated.
    """
    present, compared = read_epoch(), 0
    began = None
    changed: list[DivergentCopy] = []
    if read_epoch_in_redis() > present:
        began = present = _begin_epoch("the store knew a later epoch", instead_of=present)
    for names in batches(scan_copy_keys()):
        strays = find_divergent_copies(names)
        if began is None and (ahead := [one for one in strays if one.is_ahead]):
            began = _begin_instead_of(ahead)
        compared += len(names)
        changed += [one for one in strays if one.amount != one.true.nanos]
        # Read again: the values may have changed, and a new epoch may have begun.
        balances.publish_or_raise([one.true for one in find_divergent_copies(names)])
    if began is not None:
        # Copies that agreed before the new epoch are void now.
        for names in batches(scan_copy_keys()):
            balances.publish_or_raise([one.true for one in find_divergent_copies(names)])
    balances.void_epochs_before(began or present)
    holds = sum(int(_HOLD(some, [])) for names in batches(scan_copy_keys()) for some in by_shard(names, str).values())
    done = Resynced(compared, changed, holds, began)
    if changed or holds or began:
        log.warning("balances.resynced", compared=compared, changed=len(changed), holds=holds, epoch=began)
    return done


def repair_copies(suspects: Iterable[Balance]) -> None:
    """Repair the copies of balances that claimed a newer version. Raises as `resync` does."""
    names = [one.name for one in suspects]
    if not names:
        return
    known, present = read_epoch_in_redis(), read_epoch()
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
    """Begin a new epoch and publish it to every shard at once; return the current epoch."""
    present = begin_epoch(reason, instead_of=instead_of)
    balances.void_epochs_before(present)
    return present


def find_divergent_copies(names: Sequence[str]) -> list[DivergentCopy]:
    """Return the existing balances whose copies differ."""
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
    """Yield names in batches."""
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
    """Return the scope and id of a copy's balance."""
    word, _, identifier = name.partition(balances.COPIES)[2].partition(":")
    scope: Scope = "organization" if word == "organization" else "limit" if word == "limit" else "key"
    return scope, find_id(identifier)


def _by_scope(names: Iterable[str]) -> dict[Scope, list[UUID]]:
    found: dict[Scope, list[UUID]] = {scope: [] for scope in _SCOPES}
    for scope, identifier in map(parse_copy_key, names):
        if identifier is not None:
            found[scope].append(identifier)
    return found


# Recent copies and ledger entries to compare: a store that falls back loses the latest changes.
_LATEST = 100


class LedgerWatch:
    """State between two checks: the server's state, and which copies were behind."""

    def __init__(self, read_state: Callable[[], ServerState] = read_server_state) -> None:
        self._read_state = read_state
        self._server: ServerState | None = None
        self._behind: set[tuple[str, int]] = set()

    def look(self) -> Resynced | None:
        """Compare recent changes, and everything if they or the server's state differ; the first check always does.

        Returns the result of comparing everything. Raises DatabaseError, RedisError; the next check then starts over.
        """
        server = self._read_state()
        if server == self._server and not self._falls_back():
            return None
        self._server = None
        done = resync()
        self._server, self._behind = server, set()
        return done

    def _falls_back(self) -> bool:
        if set(read_epochs_in_redis()) != {read_epoch()}:
            return True
        moved = ask_each(lambda shard: client().lrange(balances.MOVED[shard], 0, _LATEST - 1))
        latest = {str(name) for names in moved for name in names}
        latest.update(one.name for one in ledger.moved_last(_LATEST))
        strays = find_divergent_copies(sorted(latest))
        # A copy that is behind once is being settled; the same version twice means that its update was lost.
        behind = {(one.true.name, one.version) for one in strays}
        stuck, self._behind = behind & self._behind, behind
        return bool(stuck) or any(one.is_ahead for one in strays)
