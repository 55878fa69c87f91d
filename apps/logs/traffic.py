"""Traffic: a roll-up of all organizations' requests into slots of five minutes and an hour, and the operators' report.

As in `rollup`, each batch of rows appends deltas in its transaction, and a fold moves them into slots in one statement.
Slots and deltas together are always exact, even after a crash. Durations are counted in steps of a logarithmic scale,
so that percentiles of any period can be computed from sums. The report of the last hour, day or week reads slots and
deltas in one statement, so that a fold in between counts no row twice and misses none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.db.models import Min

from apps.kernel.postgres.replica import PRIMARY
from apps.kernel.postgres.rows import write_array
from apps.logs.models import TrafficCounts, TrafficDelta, TrafficSlot
from apps.logs.rollup import CREDITS, PAID, SLOT_ORIGIN, SlotRollup, Sum, bounded

# Steps of duration per doubling: each is 19 % longer than the one before.
STEPS_PER_DOUBLING = 4
# Retention of slots by their minutes.
KEPT = {5: timedelta(days=1), 60: timedelta(days=35)}

_PARTS = {
    "requests": "1",
    "errors": "has_error::int",
    "cache_hits": "cached::int",
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_tokens": "cached_tokens",
    "cost": PAID,
    "credits_cost": f"CASE WHEN {CREDITS} THEN {PAID} END",
}
SUMS = tuple(_PARTS)


def _step_of(milliseconds: str) -> str:
    counted = f"CASE WHEN {milliseconds} > 1 THEN {milliseconds} WHEN {milliseconds} IS NOT NULL THEN 1 END"
    return f"floor({STEPS_PER_DOUBLING} * ln({counted}) / ln(2))::int::text"


# A request that reached no provider counts for the requested model, and for no provider.
_NAME_OF = {
    TrafficCounts.Aspect.EVERYTHING: "''",
    TrafficCounts.Aspect.MODEL: "coalesce(nullif(used_model, ''), requested_model)",
    TrafficCounts.Aspect.PROVIDER: "nullif(used_provider, '')",
    TrafficCounts.Aspect.ORGANIZATION: "organization_id::text",
    TrafficCounts.Aspect.END: "unified_finish_reason",
    TrafficCounts.Aspect.DURATION: _step_of("duration"),
    TrafficCounts.Aspect.FIRST_TOKEN: _step_of("time_to_first_token"),
}
_ASPECTS = ", ".join(f"('{aspect}', {name})" for aspect, name in _NAME_OF.items())
_DELTAS = TrafficDelta._meta.db_table
_NAMES = ", ".join(SUMS)


def _insert_deltas(sign: str) -> tuple[str, str]:
    """Return the two halves of a statement that appends or retracts the sums of a table's rows."""
    totals = ", ".join(bounded(name, f"{sign}coalesce(sum({part}), 0)") for name, part in _PARTS.items())
    begin = f"""
        INSERT INTO {_DELTAS} (starts_at, aspect, name, {_NAMES})
        SELECT date_bin('5 minutes', created_at, {SLOT_ORIGIN}) AS slot, aspects.aspect, aspects.name, {totals}
        FROM """  # noqa: S608 - names are ours
    end = f"""
        CROSS JOIN LATERAL (VALUES {_ASPECTS}) AS aspects (aspect, name)
        WHERE aspects.name IS NOT NULL AND """
    return begin, end


_GROUPED = " GROUP BY slot, aspects.aspect, aspects.name"
_ADD, _TAKE_BACK = _insert_deltas(""), _insert_deltas("-")
_ROLLUP = SlotRollup(
    TrafficSlot,
    TrafficDelta,
    ("starts_at", "aspect", "name"),
    {
        name: Sum(bounded(name, f"sum({name})"), bounded(name, f"slot.{name}::numeric + excluded.{name}"))
        for name in SUMS
    },
    KEPT,
)
fold, expire = _ROLLUP.fold, _ROLLUP.expire


def append_deltas(cursor: CursorWrapper, table: str, ids: Sequence[UUID]) -> None:
    """Append the sums of a table's rows, in the transaction that adds them to the log."""
    begin, end = _ADD
    cursor.execute(f"{begin}{table}{end} id = ANY(%s::uuid[]) {_GROUPED}", [write_array(ids)])


def append_table(cursor: CursorWrapper, table: str) -> None:
    """Append the sums of all rows of a table."""
    begin, end = _ADD
    cursor.execute(f"{begin}{table}{end} true {_GROUPED}")


def retract_rows(cursor: CursorWrapper, moments: Sequence[datetime], ids: Sequence[UUID]) -> None:
    """Retract the sums of log rows with these times, before they are replaced."""
    begin, end = _TAKE_BACK
    cursor.execute(
        f"{begin}request_log{end} created_at = ANY(%s) AND id = ANY(%s) {_GROUPED}", [list(moments), list(ids)]
    )


def erase(organization_id: UUID) -> None:
    """Delete an organization's own sums; it stays in the totals."""
    named = {"aspect": TrafficCounts.Aspect.ORGANIZATION, "name": str(organization_id)}
    # In the order of a fold, so that no row slips through between the two.
    TrafficDelta.objects.filter(**named).delete()
    TrafficSlot.objects.filter(**named).delete()


# Names per grouping in the report, those with the most requests first.
TOP = 10
_Aspect = TrafficCounts.Aspect


@dataclass(frozen=True, slots=True)
class TrafficWindow:
    """A period up to now: its bars, of which the last is incomplete, and the slots that it uses."""

    name: str
    title: str
    bars: int
    bar: timedelta
    slot_minutes: int

    def first(self, now: datetime) -> datetime:
        """Return the start of the first bar."""
        since_epoch = now.astimezone(UTC) - _ORIGIN
        return _ORIGIN + (since_epoch // self.bar - self.bars + 1) * self.bar


# Bars start at a multiple of their length since then, like slots.
_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
WINDOWS = {
    one.name: one
    for one in (
        TrafficWindow("1h", "1 hour", 12, timedelta(minutes=5), 5),
        TrafficWindow("24h", "24 hours", 24, timedelta(hours=1), 60),
        TrafficWindow("7d", "7 days", 28, timedelta(hours=6), 60),
    )
}


@dataclass(slots=True)
class Traffic:
    """Sums of requests. Tokens and requests are counts, costs USD; `durations` and `first_tokens` are counts by step of
    time.
    """

    requests: int = 0
    errors: int = 0
    cache_hits: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: Decimal = Decimal(0)
    credits_cost: Decimal = Decimal(0)
    durations: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    first_tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: Traffic) -> None:
        """Add the sums of other requests."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.durations, other.durations), (self.first_tokens, other.first_tokens)):
            for step, count in others.items():
                mine[step] += count


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """The sums of a window: by bar, in total, and by name in each grouping, most requests first.

    `providers` has each provider's bars. `counted_since` is the start of the oldest slot, None if there is none.
    """

    first: datetime
    bars: list[tuple[datetime, Traffic]]
    total: Traffic
    top: dict[str, list[tuple[str, Traffic]]]
    providers: dict[str, dict[datetime, Traffic]]
    counted_since: datetime | None


def read_report(window: TrafficWindow, now: datetime, using: str = PRIMARY) -> TrafficReport:
    """Return the report of a window. Raises DatabaseError."""
    first = window.first(now)
    bars = {first + number * window.bar: Traffic() for number in range(window.bars)}
    top: dict[str, list[tuple[str, Traffic]]] = {aspect: [] for aspect in _TOLD}
    providers: dict[str, dict[datetime, Traffic]] = defaultdict(dict)
    with connections[using].cursor() as cursor:
        asked: dict[str, Any] = {"bar": window.bar, "minutes": window.slot_minutes, "first": first, "top": TOP}
        cursor.execute(_QUESTION, asked)
        for aspect, name, bar, *sums in cursor.fetchall():
            counted = Traffic(**_numbers(sums))
            if bar is None:
                top[aspect].append((name, counted))
            elif aspect == _Aspect.PROVIDER:
                providers[name][bar] = counted
            elif bar not in bars:
                continue  # The row's clock is ahead of ours.
            elif aspect == _Aspect.EVERYTHING:
                bars[bar].add(counted)
            else:
                steps = bars[bar].durations if aspect == _Aspect.DURATION else bars[bar].first_tokens
                steps[int(name)] += counted.requests
    total = Traffic()
    for one in bars.values():
        total.add(one)
    slots = TrafficSlot.objects.using(using)
    since = slots.filter(minutes=window.slot_minutes).aggregate(since=Min("starts_at"))["since"]
    return TrafficReport(first, list(bars.items()), total, top, dict(providers), since)


def spent_lately(since: datetime) -> dict[str, Decimal]:
    """Return each organization's spending with credits in USD, by id, since the start of an hour."""
    counted = {"aspect": _Aspect.ORGANIZATION, "starts_at__gte": since, "credits_cost__gt": 0}
    spent: dict[str, Decimal] = defaultdict(Decimal)
    for name, cost in TrafficSlot.objects.filter(minutes=60, **counted).values_list("name", "credits_cost"):
        spent[name] += cost
    return dict(spent)


def percentile_of(steps: Mapping[int, int], share: float) -> float | None:
    """Return the time in milliseconds within which a share of requests finished, to 10 %; None without requests."""
    wanted, seen = share * sum(count for count in steps.values() if count > 0), 0.0
    for step, count in sorted(steps.items()):
        if count > 0 and seen + count >= wanted:
            return float(2 ** ((step + (wanted - seen) / count) / STEPS_PER_DOUBLING))
        seen += max(count, 0)
    return None


def _numbers(sums: list[Any]) -> dict[str, Any]:
    return {
        name: value if name in {"cost", "credits_cost"} else int(value) for name, value in zip(SUMS, sums, strict=True)
    }


_TOLD = (_Aspect.MODEL, _Aspect.PROVIDER, _Aspect.ORGANIZATION, _Aspect.END)
_BY_BAR = (_Aspect.EVERYTHING, _Aspect.DURATION, _Aspect.FIRST_TOKEN)
_TOTALS = ", ".join(f"sum({name}) AS {name}" for name in SUMS)


def _list(aspects: tuple[TrafficCounts.Aspect, ...]) -> str:
    return ", ".join(f"'{aspect}'" for aspect in aspects)


_QUESTION = f"""
    WITH counted AS MATERIALIZED (
        SELECT aspect, name, date_bin(%(bar)s, starts_at, TIMESTAMPTZ '2000-01-01 00:00:00+00') AS bar, {_TOTALS}
        FROM (
            SELECT aspect, name, starts_at, {_NAMES} FROM {TrafficSlot._meta.db_table}
            WHERE minutes = %(minutes)s AND starts_at >= %(first)s
            UNION ALL
            SELECT aspect, name, starts_at, {_NAMES} FROM {TrafficDelta._meta.db_table} WHERE starts_at >= %(first)s
        ) AS added GROUP BY aspect, name, bar
    ), ranked AS (
        SELECT aspect, name, NULL::timestamptz AS bar, {_TOTALS},
            row_number() OVER (PARTITION BY aspect ORDER BY sum(requests) DESC, name) AS place
        FROM counted WHERE aspect IN ({_list(_TOLD)}) GROUP BY aspect, name HAVING sum(requests) > 0
    )
    SELECT aspect, name, bar, {_NAMES} FROM counted WHERE aspect IN ({_list(_BY_BAR)})
    UNION ALL
    SELECT aspect, name, bar, {_NAMES} FROM counted
    WHERE aspect = '{_Aspect.PROVIDER}'
        AND name IN (SELECT name FROM ranked WHERE aspect = '{_Aspect.PROVIDER}' AND place <= %(top)s)
    UNION ALL
    (SELECT aspect, name, bar, {_NAMES} FROM ranked WHERE place <= %(top)s ORDER BY aspect, place)
"""  # noqa: S608 - names are ours
