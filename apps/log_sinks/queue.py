"""The queue of every sink: its undelivered rows of the log, written with them, and taken in batches.

A row waits from the transaction that writes it until the transaction that records its delivery, so the order of ids or
commits does not matter: a row that is committed late is sent late. A batch keeps its rows and number until it is
delivered, even after a crash. Rows are read from PostgreSQL only: they are sent long before they are archived.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Min, TextField
from django.db.models.functions import Cast

from apps.kernel.ids import time_of
from apps.kernel.postgres.rows import write_array
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, JSON_COLUMNS, LogRow
from apps.logs.retention import FORBIDDEN, visible_to
from apps.organizations.models import RetentionLevel

# Rows and JSON bytes of a batch; a single row may be larger. Rows that are read at once.
MAX_ROWS, MAX_BYTES, _AT_ONCE = 500, 4 * 1024 * 1024, 25
# Maximum time that a row waits: it is still in PostgreSQL then, even if older ones are archived.
MAX_WAIT = timedelta(days=5)
_PURGED_AT_ONCE = 10_000

_ENQUEUE = """
    INSERT INTO log_sinks_waitingrow (sink_id, log_id)
    SELECT sink.id, given.log_id FROM unnest(%s::uuid[], %s::uuid[]) AS given (log_id, organization_id)
    JOIN log_sinks_logsink AS sink ON sink.organization_id = given.organization_id AND sink.status = 'active'
"""
_GONE = """
    DELETE FROM log_sinks_waitingrow WHERE id = ANY(ARRAY(
        SELECT waiting.id FROM log_sinks_waitingrow AS waiting
        LEFT JOIN log_sinks_logsink AS sink ON sink.id = waiting.sink_id AND sink.status <> 'deleted'
        WHERE sink.id IS NULL LIMIT %s
    ))
"""


@dataclass(frozen=True, slots=True)
class QueuedBatch:
    """Rows that are sent together. `day` is when the first of them was queued; some may be gone from the log."""

    number: int
    day: date
    waiting: list[int]
    rows: list[LogRow]


def enqueue(rows: Sequence[tuple[UUID, UUID]]) -> None:
    """Queue log rows, each with its organization, for the organizations' sinks; in the rows' transaction."""
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(_ENQUEUE, [write_array([one for one, _ in rows]), write_array([owner for _, owner in rows])])


def take_batch(sink: LogSink) -> QueuedBatch | None:
    """Return the next batch: the unfinished one, else a new one; None if no row waits."""
    waiting = WaitingRow.objects.filter(sink_id=sink.pk)
    number = waiting.filter(batch__isnull=False).aggregate(first=Min("batch"))["first"]
    if number is None:
        number = _choose(sink)
    if number is None:
        return None
    chosen = list(waiting.filter(batch=number).order_by("id").values_list("id", "log_id", "queued_at"))
    if not chosen:
        return None
    rows = find_rows(sink, [log_id for _, log_id, _ in chosen])
    return QueuedBatch(number, chosen[0][2].date(), [identifier for identifier, _, _ in chosen], rows)


def finish(sink: LogSink, batch: QueuedBatch, now: datetime) -> None:
    """Record the delivery of a batch. Repeating it counts once."""
    with transaction.atomic():
        gone, _ = WaitingRow.objects.filter(sink_id=sink.pk, id__in=batch.waiting).delete()
        LogSink.objects.filter(pk=sink.pk).update(
            delivered_rows=F("delivered_rows") + (len(batch.rows) if gone else 0),
            last_delivered_at=now,
            failures=0,
            failing_since=None,
        )


def purge(now: datetime) -> int:
    """Delete rows of deleted sinks, and rows that waited too long, which are counted; return how many."""
    removed = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_GONE, [_PURGED_AT_ONCE])
            count = int(cursor.rowcount)
        removed += count
        if count < _PURGED_AT_ONCE:
            break
    late = WaitingRow.objects.filter(queued_at__lt=now - MAX_WAIT)
    for sink_id in list(late.order_by("sink_id").values_list("sink_id", flat=True).distinct()):
        with transaction.atomic():
            count, _ = late.filter(sink_id=sink_id).delete()
            LogSink.objects.filter(pk=sink_id).update(dropped_rows=F("dropped_rows") + count)
        removed += count
    return removed


def _choose(sink: LogSink) -> int | None:
    """Assign a batch number to the first waiting rows; return it, None if no row waits or another process was first."""
    chosen, size, after = list[int](), 0, 0
    while len(chosen) < MAX_ROWS and size < MAX_BYTES:
        page = _page(sink, after)
        sizes = _sizes(sink, [log_id for _, log_id in page])
        for identifier, log_id in page:
            size += sizes.get(log_id, 0)
            if chosen and (size > MAX_BYTES or len(chosen) == MAX_ROWS):
                break
            chosen.append(identifier)
        if len(page) < _AT_ONCE:
            break
        after = page[-1][0]
    if not chosen:
        return None
    with transaction.atomic():
        mine = LogSink.objects.filter(pk=sink.pk, last_batch=sink.last_batch).update(last_batch=sink.last_batch + 1)
        if not mine:
            return None
        WaitingRow.objects.filter(id__in=chosen).update(batch=sink.last_batch + 1)
    number: int = sink.last_batch + 1
    sink.last_batch = number
    return number


def _page(sink: LogSink, after: int) -> list[tuple[int, UUID]]:
    rows = WaitingRow.objects.filter(sink_id=sink.pk, batch=None, id__gt=after).order_by("id")
    return list(rows.values_list("id", "log_id")[:_AT_ONCE])


def _sizes(sink: LogSink, ids: list[UUID]) -> dict[UUID, int]:
    # Here and not above: the settler only queues rows, and how the API shows them comes with all of its fields.
    from apps.logs.serializers import encode, entry_of

    return {row["id"]: len(encode(entry_of(row))) for row in find_rows(sink, ids)} if ids else {}


_TEXTS = {f"{name}_text": Cast(name, TextField()) for name in JSON_COLUMNS}
_SELECTED = tuple(f"{name}_text" if name in JSON_COLUMNS else name for name in COLUMNS)
_ORDER = [RetentionLevel.NONE, RetentionLevel.METADATA, RetentionLevel.RETAIN]


def find_rows(sink: LogSink, ids: Collection[UUID]) -> list[LogRow]:
    """Return those rows that the sink's organization still has, oldest first."""
    since = visible_to([sink.organization_id], datetime.now(UTC))[sink.organization_id]
    found = RequestLog.objects.filter(
        organization_id=sink.organization_id,
        created_at__in={time_of(one) for one in ids},
        id__in=list(ids),
        created_at__gte=since,
    )
    level = _level_of(sink)
    selected = found.annotate(**_TEXTS).order_by("created_at", "id").values_list(*_SELECTED)
    return [_limited(dict(zip(COLUMNS, row, strict=True)), level) for row in selected]


def _level_of(sink: LogSink) -> RetentionLevel:
    """Return the retention level of sent rows: the organization's current level, without content unless included. The
    row's content was already limited when it was written."""
    kept = RetentionLevel(sink.organization.retention_level)
    return kept if sink.include_content else min(kept, RetentionLevel.METADATA, key=_ORDER.index)


def _limited(row: LogRow, level: RetentionLevel) -> LogRow:
    if level in FORBIDDEN:
        row |= dict.fromkeys(FORBIDDEN[level])
        if row["error_details"] is not None:
            details = json.loads(row["error_details"])
            if isinstance(details, dict):
                details.pop("message", None)
            row["error_details"] = json.dumps(details)
    return row
