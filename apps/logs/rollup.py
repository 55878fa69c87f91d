"""Roll-ups of log rows: each batch of rows appends deltas, which are folded into totals later; here, into days.

Deltas are appended in the transaction that writes the rows, so writers do not wait for each other; a fold moves deltas
into totals in one statement. Totals and deltas together are always exact, even after a crash. Retention changes no sum
of days. `SlotRollup` is the same for slots of two lengths (`traffic`, `performance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection, models
from django.db.backends.utils import CursorWrapper

from apps.kernel.money import LARGEST
from apps.kernel.postgres.rows import write_array
from apps.logs.models import ActivityDay, ActivityDelta

# Deltas folded by one statement, in some tens of milliseconds.
BATCH = 10_000
# Slots start at a multiple of their length since then.
SLOT_ORIGIN = "TIMESTAMPTZ '2000-01-01 00:00:00+00'"

# Grouping of sums. A request that reached no provider counts for the requested model.
_DIMENSIONS = {
    "date": "(created_at AT TIME ZONE 'UTC')::date",
    "organization_id": "organization_id",
    "project_id": "project_id",
    "api_key_id": "api_key_id",
    "model": "coalesce(nullif(used_model, ''), requested_model)",
    "provider": "used_provider",
}
CREDITS = "used_mode = 'credits'"
PAID = "coalesce(cost, 0) + coalesce(data_storage_cost, 0)"
# The contribution of a row to each sum. Components without their own sum belong to a related one, so that components
# add up to the total: cache writes are input, a search is a request cost. Storage is not part of a request's cost.
_PARTS = {
    "request_count": "1",
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_tokens": "cached_tokens",
    "total_tokens": "total_tokens",
    "error_count": "has_error::int",
    "cache_count": "cached::int",
    "credits_request_count": f"({CREDITS})::int",
    "api_keys_request_count": f"(NOT {CREDITS})::int",
    "cost": PAID,
    "input_cost": "coalesce(input_cost, 0) + coalesce(cache_write_cost, 0)",
    "output_cost": "output_cost",
    "cached_input_cost": "cached_input_cost",
    "request_cost": "coalesce(request_cost, 0) + coalesce(web_search_cost, 0)",
    "data_storage_cost": "data_storage_cost",
    "image_input_cost": "image_input_cost",
    "image_output_cost": "image_output_cost",
    "discount_savings": "discount_savings",
    "credits_cost": f"CASE WHEN {CREDITS} THEN {PAID} END",
    "api_keys_cost": f"CASE WHEN NOT {CREDITS} THEN {PAID} END",
    "credits_data_storage_cost": f"CASE WHEN {CREDITS} THEN data_storage_cost END",
    "api_keys_data_storage_cost": f"CASE WHEN NOT {CREDITS} THEN data_storage_cost END",
}
SUMS = tuple(_PARTS)
_DAYS, _DELTAS = ActivityDay._meta.db_table, ActivityDelta._meta.db_table
_NAMES = ", ".join((*_DIMENSIONS, *SUMS))
_KEY = ", ".join(_DIMENSIONS)


def bounded(name: str, total: str) -> str:
    """Return the expression that limits a total to its column's range, by the type of the column.

    One request with absurd counts must not block all others.
    """
    is_money = "cost" in name or name == "discount_savings"
    largest = LARGEST if is_money else models.BigIntegerField.MAX_BIGINT
    return f"least(greatest({total}, -{largest}), {largest})"


def fold_statement(deltas: str, columns: str, insert: str) -> str:
    """Return the statement that folds up to so many rows of a table of deltas, and counts them.

    `insert` adds the rows `taken`, which have these columns, to their totals.
    """
    return f"""
        WITH taken AS (
            DELETE FROM {deltas} WHERE id = ANY(ARRAY(
                SELECT id FROM {deltas} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
            )) RETURNING {columns}
        ), folded AS ({insert})
        SELECT count(*) FROM taken
    """  # noqa: S608 - names are ours


def fold_in_batches(statement: str) -> int:
    """Run a statement that folds deltas until none is left; return how many it folded. Safe to run concurrently."""
    folded = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, [BATCH])
            taken = int(cursor.fetchone()[0])
        folded += taken
        if taken < BATCH:
            return folded


class Sum(NamedTuple):
    """A column of totals: the expression over a group of deltas, and over the rows `slot` and `excluded`."""

    of_group: str
    added: str


class SlotRollup:
    """A roll-up into slots of two lengths, in minutes, for which `kept` has their retention.

    Deltas start where slots of the shorter length do. `key` are the columns that identify a slot beside its length, in
    the order of their index; one is `starts_at`.
    """

    def __init__(
        self,
        slots: type[models.Model],
        deltas: type[models.Model],
        key: Sequence[str],
        sums: Mapping[str, Sum],
        kept: Mapping[int, timedelta],
    ) -> None:
        self._slots, self._kept = slots, kept
        short, long = kept
        names, identity = ", ".join(sums), ", ".join(("minutes", *key))
        source = ", ".join(f"length.{name}" if name in ("minutes", "starts_at") else name for name in ("minutes", *key))
        self._fold = fold_statement(
            deltas._meta.db_table,
            f"{', '.join(key)}, {names}",
            f"""
            INSERT INTO {slots._meta.db_table} AS slot ({identity}, {names})
            SELECT {source}, {", ".join(f"{one.of_group} AS {name}" for name, one in sums.items())}
            FROM taken CROSS JOIN LATERAL (VALUES
                ({short}, taken.starts_at), ({long}, date_bin('{long} minutes', taken.starts_at, {SLOT_ORIGIN}))
            ) AS length (minutes, starts_at)
            GROUP BY {source} ORDER BY {source}
            ON CONFLICT ({identity}) DO UPDATE SET {", ".join(f"{name} = {one.added}" for name, one in sums.items())}
            """,  # noqa: S608 - names are ours
        )

    def fold(self) -> int:
        """Fold existing deltas into their slots; return how many. Safe to run concurrently."""
        return fold_in_batches(self._fold)

    def expire(self, now: datetime) -> int:
        """Delete expired slots; return how many."""
        rows = self._slots._default_manager
        return sum(
            rows.filter(minutes=minutes, starts_at__lt=now - kept).delete()[0] for minutes, kept in self._kept.items()
        )


def _insert_deltas(sign: str) -> str:
    """Return the statement that appends or retracts the sums of a table's rows."""
    dimensions = ", ".join(f"{expression} AS {name}" for name, expression in _DIMENSIONS.items())
    totals = (bounded(name, f"{sign}coalesce(sum({part}), 0)") for name, part in _PARTS.items())
    return f"INSERT INTO {_DELTAS} ({_NAMES}) SELECT {dimensions}, {', '.join(totals)} FROM "  # noqa: S608 - names are ours


_EVERY_PROJECT, _EVERY_KEY = (f"coalesce({name}, '{ActivityDay.EVERY}')" for name in ("project_id", "api_key_id"))
_ADD, _TAKE_BACK = _insert_deltas(""), _insert_deltas("-")
_ROLL_UP = fold_statement(
    _DELTAS,
    _NAMES,
    f"""
        INSERT INTO {_DAYS} AS day (id, {_NAMES})
        SELECT gen_random_uuid(), date, organization_id, {_EVERY_PROJECT}, {_EVERY_KEY}, model, provider,
            {", ".join(bounded(name, f"sum({name})") for name in SUMS)}
        FROM taken GROUP BY date, organization_id, model, provider, ROLLUP (project_id, api_key_id)
        ORDER BY date, organization_id, {_EVERY_PROJECT}, {_EVERY_KEY}, model, provider
        ON CONFLICT ({_KEY}) DO UPDATE SET
            {", ".join(f"{name} = {bounded(name, f'day.{name}::numeric + excluded.{name}')}" for name in SUMS)}
    """,  # noqa: S608 - names are ours
)


def append_deltas(cursor: CursorWrapper, table: str, ids: Sequence[UUID]) -> None:
    """Append the sums of a table's rows, in the transaction that adds them to the log."""
    cursor.execute(f"{_ADD} {table} WHERE id = ANY(%s::uuid[]) GROUP BY {_KEY}", [write_array(ids)])


def retract_rows(cursor: CursorWrapper, moments: Sequence[datetime], ids: Sequence[UUID]) -> None:
    """Retract the sums of log rows with these times, before they are replaced."""
    cursor.execute(
        f"{_TAKE_BACK} request_log WHERE created_at = ANY(%s) AND id = ANY(%s) GROUP BY {_KEY}",
        [list(moments), list(ids)],
    )


def roll_up() -> int:
    """Fold existing deltas into their days; return how many. Safe to run concurrently."""
    return fold_in_batches(_ROLL_UP)
