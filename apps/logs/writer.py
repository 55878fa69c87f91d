"""Idempotent bulk writer of log rows: each request is stored once.

Text loses NUL and lone surrogates, numbers are limited to their columns, and JSON is cleaned for `jsonb`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
import structlog
from django.db import DatabaseError, connection, models, transaction
from django.db.backends.utils import CursorWrapper
from msgspec.structs import replace

from apps.kernel.concurrency.background import throttled
from apps.kernel.ids import time_of
from apps.kernel.money import storable
from apps.logs import partitions, performance, rollup, traffic
from apps.logs.entry import Entry
from apps.logs.models import RequestLog
from apps.organizations.models import Organization

ColumnValues = tuple[Any, ...]

_FIELDS: list[models.Field[Any, Any]] = list(RequestLog._meta.concrete_fields)
COLUMNS = tuple(field.name for field in _FIELDS)
# Columns that can be large or malformed, and that billing does not need.
_CONTENT = tuple(field.name for field in _FIELDS if isinstance(field, (models.JSONField, models.TextField)))
_ENCODER = msgspec.json.Encoder(uuid_format="canonical")
# Maximum nesting of JSON, and the replacement for deeper values.
_DEEPEST, _TOO_DEEP = 200, "[nested too deep]"


def encode_row(entry: Entry) -> ColumnValues:
    """Return the entry's row in the order of `COLUMNS`. Never raises: a row that cannot be encoded loses its
    content."""
    try:
        return _row_of(entry)
    except (TypeError, ValueError, RecursionError, ArithmeticError) as error:
        return encode_row_without_content(entry, type(error).__name__)


def encode_row_without_content(entry: Entry, reason: str) -> ColumnValues:
    """Return an entry's row without content: identifiers, tokens, costs, times and status stay."""
    bare = msgspec.structs.replace(entry, **dict.fromkeys(_CONTENT))
    bare.error_details = {"code": "content_not_stored", "reason": reason}
    return _row_of(bare)


def _row_of(entry: Entry) -> ColumnValues:
    return tuple(
        [
            value if (value := getattr(entry, name)) is None or convert is None else convert(value)
            for name, convert in _CONVERTERS
        ]
    )


def _text(value: str, longest: int | None = None) -> str:
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")[:longest]


def _json(value: Any) -> str:
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError):
        text = _ENCODER.encode(_clean(value))
    if b"\\u0000" in text:
        text = _ENCODER.encode(_clean(value))
    return text.decode()


def _clean(value: Any, depth: int = 0) -> Any:
    """Return JSON that PostgreSQL accepts, with as much of `value` as possible."""
    if depth > _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(str(name)): _clean(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner, depth + 1) for inner in value]
    if isinstance(value, int) and value.bit_length() > 1024:
        return float("inf") if value > 0 else float("-inf")  # Which JSON writes as null.
    return value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _whole(bits: int, lowest: int | None = None) -> Callable[[int], int]:
    highest = 2 ** (bits - 1) - 1
    lowest = -highest - 1 if lowest is None else lowest
    return lambda value: min(max(value, lowest), highest)


def _converter_of(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """Return the conversion to a column's format; None if all values fit."""
    match field:
        case models.CharField():
            longest = field.max_length
            return lambda value: _text(value, longest)
        case models.TextField():
            return _text
        case models.JSONField():
            return _json
        case models.DecimalField():
            return storable
        case models.FloatField():
            return _finite
        case models.PositiveSmallIntegerField():
            return _whole(16, 0)
        case models.BigIntegerField():
            return _whole(64)
        case models.IntegerField():
            return _whole(32)
        case _:
            return None


# By column: the entry's attribute and its conversion. The row's time is the id's.
_CONVERTERS = tuple(
    ("id", time_of) if field.name == "created_at" else (field.name, _converter_of(field)) for field in _FIELDS
)


log = structlog.get_logger(__name__)

_NAMES = ", ".join(COLUMNS)
# Each connection keeps its temporary table, because creating one costs as much as writing 20 rows. Its name depends on
# the columns, for connections that outlive a deployment.
_INCOMING = f"incoming_log_{crc32(_NAMES.encode()):08x}"
_MAKE = f"CREATE TEMPORARY TABLE IF NOT EXISTS {_INCOMING} (LIKE request_log) ON COMMIT DELETE ROWS"
_REPLACED = ", ".join(f"{name} = {_INCOMING}.{name}" for name in COLUMNS if name not in {"id", "created_at"})
# All writers use one order, so that writers of the same rows wait for each other instead of deadlocking.
_INSERT = f"""
    INSERT INTO request_log ({_NAMES}) SELECT {_NAMES} FROM {_INCOMING} ORDER BY created_at, id
    ON CONFLICT (created_at, id) DO NOTHING RETURNING id
"""  # noqa: S608 - the names are the model's
# Existing rows that the sweeper wrote and for which the worker's own record arrives now.
_KNOWN = f"SELECT created_at, id FROM {_INCOMING} WHERE NOT swept AND NOT id = ANY(%s)"  # noqa: S608 - the names are ours
_SWEPT = """
    SELECT created_at, id FROM request_log WHERE created_at = ANY(%s) AND id = ANY(%s) AND swept
    ORDER BY created_at, id FOR UPDATE
"""
_WRITTEN = "SELECT id FROM request_log WHERE created_at = ANY(%s) AND id = ANY(%s) AND NOT swept"
_REPLACE = f"""
    UPDATE request_log SET {_REPLACED} FROM {_INCOMING}
    WHERE request_log.created_at = ANY(%s) AND request_log.id = ANY(%s) AND {_INCOMING}.id = request_log.id
"""  # noqa: S608 - the names are the model's
# SQLSTATE classes for problems with a row's data: data exceptions, and values that are too large or complex.
_ABOUT_CONTENT = ("22", "54")


def prepare(entries: Sequence[Entry]) -> None:
    """Create the partitions that a batch needs, before its transaction.

    Inside the transaction, other settlers of that day would have to wait. Raises DatabaseError.
    """
    partitions.ensure({time_of(entry.id).date() for entry in entries})


def write(entries: Sequence[Entry]) -> set[UUID]:
    """Write a batch in the caller's transaction; return the new ids.

    A row is written once. Only a row that the sweeper wrote for a dead worker is replaced by the worker's own record,
    and counts as new. A record that the database rejects loses its content, never its row, and does not block others.
    Raises DatabaseError if the database accepts none.
    """
    chosen = _one_each(entries)
    if not chosen:
        return set()
    # They exist, unless one was dropped meanwhile.
    prepare(chosen)
    row_for = _Rows(_deleted({entry.organization_id for entry in chosen}))
    written = _insert_rows(chosen, row_for)
    performance.append_deltas(entry for entry in chosen if entry.id in written)
    return written


def _insert_rows(entries: Sequence[Entry], row_for: Callable[[Entry], ColumnValues]) -> set[UUID]:
    """Insert the entries' rows; return the new ids. Raises DatabaseError if the database accepts none."""
    try:
        return _insert(map(row_for, entries))
    except DatabaseError as error:
        if _reason(error) is None:
            raise
    return set().union(*(_write_alone(entry, row_for(entry)) for entry in entries))


def find_written(ids: Sequence[UUID]) -> set[UUID]:
    """Return which of these requests have their row; rows of the sweeper do not count. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITTEN, [[time_of(one) for one in ids], list(ids)])
        return {identifier for (identifier,) in cursor.fetchall()}


class _Rows:
    """Encodes entries as rows, without content if the organization was deleted meanwhile."""

    def __init__(self, deleted: set[UUID]) -> None:
        self._deleted = deleted

    def __call__(self, entry: Entry) -> ColumnValues:
        if entry.organization_id not in self._deleted:
            return encode_row(entry)
        return encode_row_without_content(
            replace(entry, source=None, session_id=None, user_agent=None), "organization_deleted"
        )


def _deleted(organizations: set[UUID]) -> set[UUID]:
    """Return the deleted ones; erasure of the others waits until the caller's transaction has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, status FROM organizations_organization WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE",
            [list(organizations)],
        )
        return {identifier for identifier, status in cursor.fetchall() if status == Organization.Status.DELETED}


def _one_each(entries: Sequence[Entry]) -> list[Entry]:
    """Return one entry per id, ordered by id: the last one that is not the sweeper's, if any."""
    chosen: dict[UUID, Entry] = {}
    for entry in entries:
        if entry.id not in chosen or chosen[entry.id].swept or not entry.swept:
            chosen[entry.id] = entry
    return [chosen[identifier] for identifier in sorted(chosen)]


def _write_alone(entry: Entry, row: ColumnValues) -> set[UUID]:
    try:
        return _insert([row])
    except DatabaseError as error:
        reason = _reason(error)
        if reason is None:
            raise
    log.error("logs.content_not_stored", log_id=str(entry.id), reason=reason)
    return _insert([encode_row_without_content(entry, reason)])


def _insert(rows: Iterable[ColumnValues]) -> set[UUID]:
    """Insert rows, all or none. Raises DatabaseError."""
    given = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_MAKE)
        with connection.wrap_database_errors, cursor.copy(f"COPY {_INCOMING} ({_NAMES}) FROM STDIN") as copy:
            for row in throttled(rows):
                copy.write_row(row)
                given += 1
        cursor.execute(_INSERT)
        written = [identifier for (identifier,) in cursor.fetchall()]
        if len(written) < given:
            written += _replace(cursor, written)
        if written:
            rollup.append_deltas(cursor, _INCOMING, written)
            traffic.append_deltas(cursor, _INCOMING, written)
        cursor.execute(f"DELETE FROM {_INCOMING}")  # noqa: S608 - the name is ours
    return set(written)


def _replace(cursor: CursorWrapper, written: list[UUID]) -> list[UUID]:
    """Replace the sweeper's rows by the workers' own records; return their ids."""
    cursor.execute(_KNOWN, [written])
    known = cursor.fetchall()
    if known:
        cursor.execute(_SWEPT, [[moment for moment, _ in known], [identifier for _, identifier in known]])
        known = cursor.fetchall()
    if not known:
        return []
    moments, ids = [moment for moment, _ in known], [identifier for _, identifier in known]
    rollup.retract_rows(cursor, moments, ids)
    traffic.retract_rows(cursor, moments, ids)
    cursor.execute(_REPLACE, [moments, ids])
    return ids


def _reason(error: DatabaseError) -> str | None:
    """Return why the database rejected a row's data, or None if the error has another cause."""
    sqlstate: str = getattr(error.__cause__, "sqlstate", None) or ""
    return f"SQLSTATE {sqlstate}" if sqlstate.startswith(_ABOUT_CONTENT) else None
