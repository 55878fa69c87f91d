"""Idempotent bulk writer of log rows: each request is stored once.

Knows how a batch gets into the table. Must never know where records come from, nor what they cost anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID
from zlib import crc32

import structlog
from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from msgspec.structs import replace

from apps.kernel.cpu_throttle import throttled
from apps.kernel.ids import time_of
from apps.logs import partitions, rollup, traffic
from apps.logs.entry import Entry
from apps.logs.row_encoding import COLUMNS, ColumnValues, encode_row, encode_row_without_content
from apps.organizations.models import Organization

log = structlog.get_logger(__name__)

_NAMES = ", ".join(COLUMNS)
# Each connection keeps its own and empties it: to make one costs as much as to write 20 rows. Named after the columns,
# for connections that outlive a deployment.
_INCOMING = f"incoming_log_{crc32(_NAMES.encode()):08x}"
_MAKE = f"CREATE TEMPORARY TABLE IF NOT EXISTS {_INCOMING} (LIKE request_log) ON COMMIT DELETE ROWS"
_REPLACED = ", ".join(f"{name} = {_INCOMING}.{name}" for name in COLUMNS if name not in {"id", "created_at"})
# One order for every writer: two that meet on the same rows wait for each other instead of locking each other out.
_INSERT = f"""
    INSERT INTO request_log ({_NAMES}) SELECT {_NAMES} FROM {_INCOMING} ORDER BY created_at, id
    ON CONFLICT (created_at, id) DO NOTHING RETURNING id
"""  # noqa: S608 - the names are the model's
# What was there already, was written by the sweeper, and now comes from the worker itself.
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
# SQLSTATE classes that speak of what a row holds: data exceptions, and what is too large or too complex.
_ABOUT_CONTENT = ("22", "54")


def prepare(entries: Sequence[Entry]) -> None:
    """Make the partitions that a batch needs, before the transaction that writes it.

    Within it others who settle that day would wait for its end. Raises DatabaseError.
    """
    partitions.ensure({time_of(entry.id).date() for entry in entries})


def write(entries: Sequence[Entry]) -> set[UUID]:
    """Write a batch inside the caller's transaction; return the ids that are new.

    A row is written once. Only one that the sweeper wrote for a worker believed dead is replaced by the worker's own
    word, and is new again. A record that the database will not take loses its content, never its row, and holds up no
    other. Raises DatabaseError when the database cannot take any.
    """
    chosen = _one_each(entries)
    if not chosen:
        return set()
    # There already, unless one was dropped since.
    prepare(chosen)
    row_for = _Rows(_deleted({entry.organization_id for entry in chosen}))
    try:
        return _insert(map(row_for, chosen))
    except DatabaseError as error:
        if _reason(error) is None:
            raise
    return set().union(*(_write_alone(entry, row_for(entry)) for entry in chosen))


def find_written(ids: Sequence[UUID]) -> set[UUID]:
    """Return which of these requests have their row. One of the sweeper's does not count. Raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITTEN, [[time_of(one) for one in ids], list(ids)])
        return {identifier for (identifier,) in cursor.fetchall()}


class _Rows:
    """From an entry to its row: without content where the organization was deleted before the record came."""

    def __init__(self, deleted: set[UUID]) -> None:
        self._deleted = deleted

    def __call__(self, entry: Entry) -> ColumnValues:
        if entry.organization_id not in self._deleted:
            return encode_row(entry)
        return encode_row_without_content(replace(entry, source=None), "organization_deleted")


def _deleted(organizations: set[UUID]) -> set[UUID]:
    """Return those that are deleted; erasure of the others waits until the caller's transaction has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, status FROM organizations_organization WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE",
            [list(organizations)],
        )
        return {identifier for identifier, status in cursor.fetchall() if status == Organization.Status.DELETED}


def _one_each(entries: Sequence[Entry]) -> list[Entry]:
    """Return one entry an id, in order of ids: the last that is not the sweeper's, if there is one."""
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
    """Let workers' own words replace the sweeper's; return the ids of those rows."""
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
    """Return why the database refused what a row holds, or None when the refusal is about something else."""
    sqlstate: str = getattr(error.__cause__, "sqlstate", None) or ""
    return f"SQLSTATE {sqlstate}" if sqlstate.startswith(_ABOUT_CONTENT) else None
