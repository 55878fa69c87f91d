"""Traffic: a roll-up of all organizations' requests into slots of five minutes and an hour, for operators.

As in `rollup`, each batch of rows appends deltas in its transaction, and a fold moves them into slots in one statement.
Slots and deltas together are always exact, even after a crash. Durations are counted in steps of a logarithmic scale,
so that percentiles of any period can be computed from sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.backends.utils import CursorWrapper

from apps.kernel.postgres.postgres_arrays import write_array
from apps.logs.models import TrafficCounts, TrafficDelta, TrafficSlot
from apps.logs.rollup import CREDITS, PAID, bounded

# Steps of duration per doubling: each is 19 % longer than the one before.
STEPS_PER_DOUBLING = 4
# Retention of slots by their minutes.
KEPT = {5: timedelta(days=1), 60: timedelta(days=35)}
# Deltas folded by one statement.
BATCH = 10_000
# Slots start at a multiple of their length since then.
_ORIGIN = "TIMESTAMPTZ '2000-01-01 00:00:00+00'"

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
_SLOTS, _DELTAS = TrafficSlot._meta.db_table, TrafficDelta._meta.db_table
_NAMES = ", ".join(SUMS)


def _insert_deltas(sign: str) -> tuple[str, str]:
    """Return the two halves of a statement that appends or retracts the sums of a table's rows."""
    totals = ", ".join(bounded(name, f"{sign}coalesce(sum({part}), 0)") for name, part in _PARTS.items())
    begin = f"""
        INSERT INTO {_DELTAS} (starts_at, aspect, name, {_NAMES})
        SELECT date_bin('5 minutes', created_at, {_ORIGIN}) AS slot, aspects.aspect, aspects.name, {totals}
        FROM """  # noqa: S608 - names are ours
    end = f"""
        CROSS JOIN LATERAL (VALUES {_ASPECTS}) AS aspects (aspect, name)
        WHERE aspects.name IS NOT NULL AND """
    return begin, end


_GROUPED = " GROUP BY slot, aspects.aspect, aspects.name"
_ADD, _TAKE_BACK = _insert_deltas(""), _insert_deltas("-")
_FOLD = f"""
    WITH taken AS (
        DELETE FROM {_DELTAS} WHERE id = ANY(ARRAY(
            SELECT id FROM {_DELTAS} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
        )) RETURNING starts_at, aspect, name, {_NAMES}
    ), folded AS (
        INSERT INTO {_SLOTS} AS slot (minutes, starts_at, aspect, name, {_NAMES})
        SELECT length.minutes, length.starts_at, aspect, name,
            {", ".join(bounded(name, f"sum({name})") for name in SUMS)}
        FROM taken CROSS JOIN LATERAL (
            VALUES (5, taken.starts_at), (60, date_bin('1 hour', taken.starts_at, {_ORIGIN}))
        ) AS length (minutes, starts_at)
        GROUP BY length.minutes, length.starts_at, aspect, name
        ORDER BY length.minutes, length.starts_at, aspect, name
        ON CONFLICT (minutes, starts_at, aspect, name) DO UPDATE SET
            {", ".join(f"{name} = {bounded(name, f'slot.{name}::numeric + excluded.{name}')}" for name in SUMS)}
    )
    SELECT count(*) FROM taken
"""  # noqa: S608 - names are ours


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


def fold() -> int:
    """Fold existing deltas into their slots; return how many. Safe to run concurrently."""
    folded = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_FOLD, [BATCH])
            taken = int(cursor.fetchone()[0])
        folded += taken
        if taken < BATCH:
            return folded


def expire(now: datetime) -> int:
    """Delete expired slots; return how many."""
    return sum(
        TrafficSlot.objects.filter(minutes=minutes, starts_at__lt=now - kept).delete()[0]
        for minutes, kept in KEPT.items()
    )


def erase(organization_id: UUID) -> None:
    """Delete an organization's own sums; it stays in the totals."""
    named = {"aspect": TrafficCounts.Aspect.ORGANIZATION, "name": str(organization_id)}
    # In the order of a fold, so that no row slips through between the two.
    TrafficDelta.objects.filter(**named).delete()
    TrafficSlot.objects.filter(**named).delete()
