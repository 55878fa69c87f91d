"""A double of PostgreSQL in memory: the ledger, its balances and epochs, and which requests have a row of the log.

It replaces the functions of the product that consist of SQL; what calls them stays the product's. It has no roll-ups,
log sinks and violations, which the simulator does not look at. `test_doubles.py` compares it with the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from django.db import connection, transaction
from django.db.transaction import Atomic

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance, Scope
from apps.billing.models import LedgerEntry
from apps.kernel.ids import new_id
from apps.kernel.money import LARGEST, ZERO
from apps.kernel.postgres import database
from apps.log_sinks import queue as log_sinks
from apps.logs import writer
from apps.logs.entry import Entry

Statement = Callable[[Callable[[], Any]], Any]


class Postgres:
    """The database. `statement` makes one call outside of a transaction, which the simulator may let fail."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        # How many transactions are open, one inside the other.
        self._depth = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        # By scope: each balance's owner, amount and version.
        self.balances: dict[Scope, dict[UUID, tuple[UUID, Decimal, int]]] = {"organization": {}, "key": {}, "limit": {}}
        # By kind and reference: organization, key, credits, usage; in the order of their ids.
        self.entries: dict[tuple[str, UUID], tuple[UUID, UUID | None, Decimal, Decimal]] = {}
        self.epochs: list[int] = []
        # By request: whether the sweeper wrote its row.
        self.rows: dict[UUID, bool] = {}

    def open_account(self, organization_id: UUID, key_id: UUID) -> None:
        """Create an organization without credits, and its key."""
        self.balances["organization"][organization_id] = (organization_id, ZERO, 0)
        self.balances["key"][key_id] = (organization_id, ZERO, 0)

    # --- what the product's functions do in SQL

    def balances_of(self, scope: Scope, ids: Iterable[UUID]) -> list[Balance]:
        """See `ledger.balances_of`."""
        wanted = list(ids)
        return list(self._ask(lambda: self._balances_among(scope, wanted)))

    def moved_last(self, count: int) -> list[Balance]:
        """See `ledger.moved_last`."""
        latest = self._ask(lambda: list(self.entries.values())[-count:])
        organizations, keys = {one[0] for one in latest}, {one[1] for one in latest if one[1]}
        return ledger.balances_of("organization", organizations) + ledger.balances_of("key", keys)

    def append(self, movements: Iterable[Any]) -> list[tuple[UUID, UUID | None, Decimal, Decimal]]:
        """See `ledger._append`."""
        new = []
        moving = [one for one in movements if one.credits or one.usage]
        for one in sorted(moving, key=lambda movement: (movement.kind, movement.reference)):
            place = str(one.kind), one.reference
            if place not in self.entries:
                self.entries[place] = one.organization_id, one.api_key_id, one.credits, one.usage
                new.append(self.entries[place])
        return new

    def add(self, scope: Scope, amounts: Mapping[UUID, Decimal]) -> list[Balance]:
        """See `ledger._add`."""
        known = self.balances[scope]
        for identifier in amounts.keys() & known.keys():
            owner, amount, version = known[identifier]
            amount = min(max(amount + amounts[identifier], -LARGEST), LARGEST)
            known[identifier] = owner, amount, version + 1
        return self._balances_among(scope, amounts)

    def grant(self, organization_id: UUID, amount: Decimal, description: str) -> None:
        """See `ledger.grant`; without its transaction's row and its checks."""
        with transaction.atomic():
            gift = ledger._Movement(LedgerEntry.Kind.GIFT, new_id(), organization_id, None, amount, ZERO)
            changed = ledger._move([gift])
            transaction.on_commit(lambda: balances.publish(changed))

    def read_epoch(self) -> int:
        """See `balance_copies.read_epoch`."""
        return int(self._ask(lambda: max(self.epochs, default=0)))

    def prepare(self, entries: Sequence[Entry]) -> None:
        """See `writer.prepare`: one statement, which finds the partitions."""
        if entries:
            self._ask(lambda: None)

    def write(self, entries: Sequence[Entry]) -> set[UUID]:
        """See `writer.write`."""
        written = set()
        for one in writer._one_each(entries):
            was_swept = self.rows.get(one.id)
            if was_swept is None or (was_swept and not one.swept):
                self.rows[one.id] = one.swept
                written.add(one.id)
        return written

    def find_written(self, ids: Sequence[UUID]) -> set[UUID]:
        """See `writer.find_written`."""
        return set(self._ask(lambda: {one for one in ids if self.rows.get(one) is False}))

    def _balances_among(self, scope: Scope, ids: Iterable[UUID]) -> list[Balance]:
        epoch, known = max(self.epochs, default=0), self.balances[scope]
        return [
            Balance(scope, one, amount, version, epoch, owner)
            for one, (owner, amount, version) in ((one, known[one]) for one in dict.fromkeys(ids) if one in known)
        ]

    def _ask(self, read: Callable[[], Any]) -> Any:
        return read() if connection.in_atomic_block else self._statement(read)

    # --- transactions

    def _tables(self) -> tuple[Any, ...]:
        balances_now = {scope: dict(known) for scope, known in self.balances.items()}
        return balances_now, dict(self.entries), list(self.epochs), dict(self.rows)

    def _begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            connection.in_atomic_block = True
            self._before = self._tables()

    def _end(self, has_failed: bool) -> None:
        """Commit, and run what waits for that, or roll back."""
        self._depth -= 1
        if self._depth:
            return
        connection.in_atomic_block = False
        if has_failed:
            self.balances, self.entries, self.epochs, self.rows = self._before
            connection.run_on_commit = []
        else:
            connection.run_and_clear_commit_hooks()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product use this database, for as long as the block runs."""
        locks = SimpleNamespace(cursor=lambda: nullcontext(SimpleNamespace(execute=lambda lock: None)))
        epochs = SimpleNamespace(objects=SimpleNamespace(create=lambda number, reason: self.epochs.append(number)))
        replaced: dict[Any, dict[str, Any]] = {
            ledger: {
                "balances_of": self.balances_of,
                "moved_last": self.moved_last,
                "grant": self.grant,
                "_append": self.append,
                "_add": self.add,
            },
            balance_copies: {"read_epoch": self.read_epoch, "LedgerEpoch": epochs, "connection": locks},
            writer: {"prepare": self.prepare, "write": self.write, "find_written": self.find_written},
            log_sinks: {"enqueue": lambda rows: None},
            database: {"_connect": lambda: None, "_within_time": _in_transaction},
            Atomic: {
                "__enter__": lambda atomic: self._begin(),
                "__exit__": lambda atomic, kind, error, traceback: self._end(kind is not None),
            },
        }
        with ExitStack() as stack:
            for place, names in replaced.items():
                stack.enter_context(patch.multiple(place, **names))
            yield


def _in_transaction(work: Callable[[], Any]) -> Any:
    with transaction.atomic():
        return work()
