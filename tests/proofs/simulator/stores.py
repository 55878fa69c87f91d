"""The stores of a simulated world: doubles in memory, or a real PostgreSQL and a real Valkey.

Both let the same product code run and answer the same, so a seed gives the same history on both; the doubles are
quicker by an order of magnitude.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol
from unittest.mock import patch
from uuid import UUID

from django.db import OperationalError, connection
from django.db.models import Sum
from redis import Redis
from redis.client import Pipeline

from apps.billing import worker_leases
from apps.billing.models import LedgerEntry
from apps.gateway.settlement import outbox, settle, spool
from apps.kernel.ids import new_id
from apps.kernel.money import ZERO
from apps.kernel.valkey.redis import client
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project, User
from tests.proofs.simulator.postgres import Postgres
from tests.proofs.simulator.tasks import Task
from tests.proofs.simulator.valkey import Valkey

# Rare branches that a run of some length must reach: one that never does says nothing about them.
BRANCHES: Final = frozenset(
    {
        *(f"reserve: {outcome}" for outcome in ("held", "stale", "unknown", "over_limit", "no_credits")),
        *(f"extend: {outcome}" for outcome in ("held", "short", "gone")),
        "spool replayed",
        "doubtful reservation released",
        "record pushed again",
        "record settled before",
        "request swept",
        "all copies compared",
    }
)


class Books(NamedTuple):
    """An account in USD: the organization's credits, the sum of its ledger entries, and its key's usage."""

    credits: Decimal
    entries: Decimal
    usage: Decimal


class Stores(Protocol):
    """The calls of a world itself to its stores, beside those of the product."""

    # The sources of the scripts that were loaded into Valkey, and how often all histories reached each branch.
    scripts: set[str]
    reached: Counter[str]

    def open_accounts(self, count: int) -> list[ApiKey]:
        """Create so many organizations without credits; return the key of each."""

    def read_books(self, key: ApiKey) -> Books:
        """Return the account of a key's organization."""

    def read_charges(self, ids: Sequence[UUID]) -> dict[UUID, Decimal]:
        """Return the credits that requests were charged, by the ids of those that were."""

    def read_rows(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Return of each request with a row of the log whether the sweeper wrote it."""

    def pass_time(self, seconds: int) -> None:
        """Let leases and unacknowledged messages be so much older."""


class RealStores:
    """The stores of this process's settings."""

    def __init__(self) -> None:
        self.scripts, self.reached = set[str](), Counter[str]()

    def open_accounts(self, count: int) -> list[ApiKey]:
        """See `Stores`."""
        user = User.objects.get_or_create(email="simulated@example.com", defaults={"name": "Simulated"})[0]
        keys = _new_keys(count, user)
        Organization.objects.bulk_create(one.project.organization for one in keys)
        Project.objects.bulk_create(one.project for one in keys)
        return ApiKey.objects.bulk_create(keys)

    def read_books(self, key: ApiKey) -> Books:
        """See `Stores`."""
        organization = Organization.objects.get(pk=key.project.organization_id)
        sums = LedgerEntry.objects.filter(organization_id=organization.id).aggregate(Sum("credits"))
        return Books(organization.credits, sums["credits__sum"] or ZERO, ApiKey.objects.get(pk=key.pk).usage)

    def read_charges(self, ids: Sequence[UUID]) -> dict[UUID, Decimal]:
        """See `Stores`."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT reference, credits FROM billing_ledgerentry WHERE kind = 'usage' AND reference = ANY(%s)",
                [list(ids)],
            )
            return dict(cursor.fetchall())

    def read_rows(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """See `Stores`."""
        return dict(RequestLog.objects.filter(id__in=ids).values_list("id", "swept"))

    def pass_time(self, seconds: int) -> None:
        """See `Stores`. The clock of a server cannot be moved: the moments that it has are."""
        store: Any = client()
        for name, beat in store.zrange(worker_leases.WORKERS[0], 0, -1, withscores=True):
            store.zadd(worker_leases.WORKERS[0], {name: beat - seconds})
        stream = outbox.STREAMS[0]
        if store.exists(stream):
            outbox.prepare()
            for one in store.xpending_range(stream, outbox.GROUP, "-", "+", 1000):
                place = stream, outbox.GROUP, one["consumer"], 0, [one["message_id"]]
                store.xclaim(*place, idle=seconds * 1000, justid=True)


class Doubles:
    """The doubles of PostgreSQL, Valkey and the disk."""

    def __init__(self) -> None:
        self.postgres = Postgres(lambda read: Task.call(read, OperationalError))
        self.valkey = Valkey(time.time())
        self.scripts, self.reached = set[str](), Counter[str]()
        self._user = User(name="Simulated")
        self._spooled: list[tuple[str, bytes]] = []
        self._is_moving = False

    def open_accounts(self, count: int) -> list[ApiKey]:
        """See `Stores`. Forgets everything else."""
        self.postgres.clear()
        self._spooled.clear()
        self._is_moving = False
        keys = _new_keys(count, self._user)
        for one in keys:
            self.postgres.open_account(one.project.organization_id, one.id)
        return keys

    def read_books(self, key: ApiKey) -> Books:
        """See `Stores`."""
        known, owner = self.postgres.balances, key.project.organization_id
        entries = sum((one[2] for one in self.postgres.entries.values() if one[0] == owner), ZERO)
        return Books(known["organization"][owner][1], entries, known["key"][key.id][1])

    def read_charges(self, ids: Sequence[UUID]) -> dict[UUID, Decimal]:
        """See `Stores`."""
        entries = self.postgres.entries
        return {one: entries["usage", one][2] for one in ids if ("usage", one) in entries}

    def read_rows(self, ids: Sequence[UUID]) -> dict[UUID, bool]:
        """See `Stores`."""
        return {one: self.postgres.rows[one] for one in ids if one in self.postgres.rows}

    def pass_time(self, seconds: int) -> None:
        """See `Stores`."""
        self.valkey.now += seconds

    def _spool(self, worker: str, record: bytes) -> None:
        self._spooled.append((worker, record))

    def _move(self, push: Callable[[str, bytes], None]) -> int:
        """See `spool.move`: a record goes once it was pushed, and one process moves at a time."""
        if self._is_moving:
            return 0
        self._is_moving, moved = True, 0
        try:
            while self._spooled:
                push(*self._spooled[0])
                del self._spooled[0]
                moved += 1
        finally:
            self._is_moving = False
        return moved

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product use the doubles, for as long as the block runs."""

        def execute_command(asking: Any, *args: Any, **options: Any) -> Any:
            return _parsed(asking, args[0], self.valkey.execute(*args), options)

        def execute_pipeline(asking: Any, raise_on_error: bool = True) -> list[Any]:
            try:
                return [
                    _parsed(asking, args[0], self.valkey.execute(*args), options)
                    for args, options in asking.command_stack
                ]
            finally:
                asking.reset()

        with ExitStack() as stack:
            stack.enter_context(self.postgres.installed())
            for place, names in (
                (Redis, {"execute_command": execute_command}),
                (Pipeline, {"execute": execute_pipeline}),
                (spool, {"add": self._spool, "move": self._move}),
                # Pauses of settlers are for processors that they share.
                (settle, {"throttled": iter}),
            ):
                stack.enter_context(patch.multiple(place, **names))
            yield


def _new_keys(count: int, user: User) -> list[ApiKey]:
    organizations = [Organization(name="Simulated") for _ in range(count)]
    projects = [Project(organization=one, name="Default Project") for one in organizations]
    usual = {"created_by": user, "description": "simulated"}
    return [ApiKey(project=one, digest=new_id().bytes * 2, **usual) for one in projects]


def _parsed(asking: Any, name: str, answer: Any, options: dict[str, Any]) -> Any:
    """Return an answer as the client's own parsers do."""
    options.pop("keys", None)
    parse = asking.response_callbacks.get(name)
    return answer if parse is None else parse(answer, **options)
