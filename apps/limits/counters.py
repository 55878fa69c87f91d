"""Counters of limits: charged once for each request, published as balances, compared with the charges.

Lock order is charges, then counters by id, which prevents deadlocks.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from django.db import connection

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance
from apps.billing.limit_holds import USD
from apps.kernel.money import LARGEST, ZERO
from apps.kernel.postgres import database
from apps.kernel.postgres.rows import write_array
from apps.limits.applied import AppliedLimit, Bucket, CountedUse, RecordedCounter, RecordedCounters

# Seconds; the window of a counter that is published again is not known.
_DAY = 86_400
# A request that is settled later counts for no limit (`retention.py`).
COUNTED_FOR: Final = timedelta(days=90)


class CounterCharge(NamedTuple):
    """The amounts that a settled request adds to counters; `reference` is the request's id."""

    reference: UUID
    organization_id: UUID
    counted: CountedUse


def charge(charges: Sequence[CounterCharge]) -> list[Balance]:
    """Add to counters inside the caller's transaction, once for each reference; return the counters to publish.

    A request that was admitted before `COUNTED_FOR` adds nothing. Raises DatabaseError.
    """
    oldest = int((time.time() - COUNTED_FOR.total_seconds()) * 1000) << 80
    by_reference = {one.reference: one for one in charges if one.counted.amounts and one.reference.int >= oldest}
    totals: dict[RecordedCounters, defaultdict[str, Decimal]] = {}
    owners: dict[RecordedCounters, UUID] = {}
    for reference in _append([by_reference[reference] for reference in sorted(by_reference)]):
        _, organization_id, counted = by_reference[reference]
        owners[counted.counters] = organization_id
        of_measures = totals.setdefault(counted.counters, defaultdict(Decimal))
        for measure, amount in counted.amounts.items():
            of_measures[measure] += amount
    sums: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    facts: dict[UUID, tuple[UUID, RecordedCounter]] = {}
    for every, of_measures in totals.items():
        for one in every.counters:
            if one.counts in of_measures:
                sums[one.counter_id] += of_measures[one.counts]
                facts[one.counter_id] = (owners[every], one)
    if not sums:
        return []
    rows = [
        (
            counter_id,
            counter.limit_id,
            organization_id,
            _moment(counter.starts_at),
            None if counter.ends_at is None else _moment(counter.ends_at),
            counter.counts == USD,
            min(sums[counter_id], LARGEST),
        )
        for counter_id, (organization_id, counter) in sorted(facts.items())
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO limits_limitcounter AS counter
                (id, limit_id, organization_id, starts_at, ends_at, is_money, used, used_version)
            SELECT *, 1 FROM unnest(
                %s::uuid[], %s::uuid[], %s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::boolean[], %s::numeric[]
            ) ON CONFLICT (id) DO UPDATE SET
                used = least(counter.used + excluded.used, %s::numeric), used_version = counter.used_version + 1
            """,
            [*(list(column) for column in zip(*rows, strict=True)), LARGEST],
        )
    return find_counters(sums)


def find_counters(ids: Iterable[UUID]) -> list[Balance]:
    """Return the counters that exist. Raises DatabaseError."""
    return ledger.balances_of("limit", ids)


def usage_of(applied: Collection[AppliedLimit]) -> dict[UUID, int]:
    """Return what the counters of each limit add up to, in units, by the id of the first. Raises DatabaseError."""
    known = {one.id: one.nanos for one in find_counters({each.counter_id for one in applied for each in one.buckets})}
    return {one.counter_id: sum(known.get(each.counter_id, 0) for each in one.buckets) for one in applied}


def counters_of(charges: Iterable[CounterCharge]) -> list[Balance]:
    """Return the counters of charges that an earlier settlement made. Raises DatabaseError."""
    every = {one.counted.counters for one in charges}
    ids = {counter.counter_id for one in every for counter in one.counters}
    return find_counters(ids) if ids else []


def publish(applied: Collection[AppliedLimit]) -> None:
    """Give the store copies of all counters of limits, as `publish_buckets` does."""
    publish_buckets([bucket for one in applied for bucket in one.buckets])


def publish_buckets(buckets: Collection[Bucket]) -> None:
    """Read counters that the store has no copies of, and give it some; one that was never charged is 0.

    Raises DatabaseError, RedisError.
    """
    _publish([Balance("limit", one.counter_id, ZERO, 0, 0, one.organization_id, one.used_until) for one in buckets])


def publish_again(counter_id: UUID, organization_id: UUID) -> None:
    """Give the store a copy of a counter that it lost while a request is in progress. Raises as `publish` does."""
    _publish([Balance("limit", counter_id, ZERO, 0, 0, organization_id, int(time.time()) + _DAY)])


def _publish(fresh: Sequence[Balance]) -> None:
    known, epoch = database.read(partial(_read, [one.id for one in fresh]), brief=True)
    found = {one.id for one in known}
    others = [replace(one, epoch=epoch) for one in fresh if one.id not in found]
    balance_copies.repair_copies(balances.publish_or_raise([*known, *others]))


def _read(ids: Iterable[UUID]) -> tuple[list[Balance], int]:
    # The epoch first: a counter that is read later cannot be older.
    epoch = balance_copies.read_epoch()
    return find_counters(ids), epoch


class CounterMismatch(NamedTuple):
    """A counter and the sum of its charges, purged ones included, which it should be."""

    counter_id: UUID
    limit_id: UUID | None
    used: Decimal
    charged: Decimal


def find_mismatches() -> list[CounterMismatch]:
    """Return every counter that differs from the sum of its charges. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(counter.id, charged.id), counter.limit_id, coalesce(counter.used, 0),
                coalesce(total, 0) + coalesce(counter.folded, 0)
            FROM limits_limitcounter counter
            FULL JOIN (
                SELECT (item->>0)::uuid AS id, sum((item->>1)::numeric) AS total
                FROM limits_limitcharge, jsonb_array_elements(counted) AS item GROUP BY 1
            ) charged ON charged.id = counter.id
            WHERE coalesce(counter.used, 0) <> coalesce(total, 0) + coalesce(counter.folded, 0) ORDER BY 1
            """
        )
        return [CounterMismatch(*row) for row in cursor.fetchall()]


def _append(charges: Sequence[CounterCharge]) -> set[UUID]:
    """Write the charges; return the references of new ones."""
    if not charges:
        return set()
    with connection.cursor() as cursor:
        # One text for all: the driver takes longer to quote one for each than all else here takes.
        cursor.execute(
            """
            INSERT INTO limits_limitcharge (reference, organization_id, counted, created_at)
            SELECT reference, organization_id, counted, now()
            FROM ROWS FROM (unnest(%s::uuid[]), unnest(%s::uuid[]), jsonb_array_elements(%s::jsonb))
                AS new (reference, organization_id, counted)
            ON CONFLICT (reference) DO NOTHING RETURNING reference
            """,
            [
                write_array([one.reference for one in charges]),
                write_array([one.organization_id for one in charges]),
                f"[{','.join([one.counted.text for one in charges])}]",
            ],
        )
        return {reference for (reference,) in cursor.fetchall()}


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
