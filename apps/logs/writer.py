"""Idempotent bulk writer of log rows: each request is stored once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID
from zlib import crc32

import structlog
from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from msgspec.structs import replace

from apps.kernel.concurrency.background import throttled
from apps.kernel.ids import time_of
from apps.logs import partitions, rollup, traffic
from apps.logs.entry import Entry
from apps.logs.row_encoding import COLUMNS, ColumnValues, encode_row, encode_row_without_content
from apps.organizations.models import Organization

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
    try:
        return _insert(map(row_for, chosen))
    except DatabaseError as error:
        if _reason(error) is None:
            raise
    return set().union(*(_write_alone(entry, row_for(entry)) for entry in chosen))


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
        return encode_row_without_content(replace(entry, source=None), "organization_deleted")


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
