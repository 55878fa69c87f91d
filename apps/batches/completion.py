"""Completion of a batch: once every line has ended, results are written to files in order, and the lines go.

All in one transaction: there are files with every line once, or none yet. Knows the order. Must never know how a line
was answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.utils import timezone

from apps.batches.batch_rows import end_open_lines
from apps.batches.models import (
    RUNNING_STATUSES,
    Batch,
    BatchFormat,
    BatchLine,
    BatchStatus,
    FilePurpose,
    LineOutcome,
)
from apps.batches.result_lines import WRITERS
from apps.batches.stored_files import FileOwner, FileWriter
from apps.kernel import database
from apps.responses.retention import expiry_of

log = structlog.get_logger(__name__)

# Lines that are read by one statement.
_TOGETHER = 200


def complete_one() -> bool:
    """End the lines that are past their time or cancelled, and complete a batch all of whose lines have ended; tell
    whether there was one. Raises DatabaseError."""
    try:
        now = timezone.now()
        for row in Batch.objects.filter(status=BatchStatus.IN_PROGRESS, expires_at__lte=now):
            end_open_lines(row, LineOutcome.EXPIRED, now)
        for row in Batch.objects.filter(status=BatchStatus.CANCELLING):
            end_open_lines(row, LineOutcome.CANCELLED, now)
        ended = Batch.objects.exclude(lines__outcome=LineOutcome.OPEN)
        ended.filter(status__in=RUNNING_STATUSES).update(status=BatchStatus.FINALIZING, finalizing_at=now)
        return _complete()
    finally:
        database.release_connection()


def _complete() -> bool:
    with transaction.atomic():
        rows = Batch.objects.select_for_update(skip_locked=True).filter(status=BatchStatus.FINALIZING)
        row = rows.order_by("created_at").first()
        if row is None:
            return False
        counts = _write_results(row)
        for outcome in counts:
            setattr(row, outcome, counts[outcome])
        row.status, row.ended_at = _final_status(row), timezone.now()
        row.save()
        row.lines.all().delete()
    log.info("batches.completed", batch=row.pk, status=row.status, **counts)
    return True


def _final_status(row: Batch) -> BatchStatus:
    if row.cancelling_at is not None:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if row.expired else BatchStatus.COMPLETED


def _write_results(row: Batch) -> dict[str, int]:
    """Write the files of a batch; return how many lines ended how."""
    now, counts = timezone.now(), Counter[str]()
    expires_at = expiry_of(row.organization_id, now)
    if row.output_lifetime is not None:
        expires_at = min(expires_at, now + timedelta(seconds=row.output_lifetime))
    write, is_openai = WRITERS[row.format], row.format == BatchFormat.OPENAI
    output = _ResultFile(row, "output" if is_openai else "results", now, expires_at)
    errors = _ResultFile(row, "error", now, expires_at) if is_openai else output
    for line in _lines(row):
        counts[line.outcome] += 1
        (output if line.outcome == LineOutcome.SUCCEEDED else errors).add(write(line))
    row.output_file_id, row.error_file_id = output.close(), errors.close() if is_openai else None
    return dict(counts)


class _ResultFile:
    """A file of results, which is begun with its first line."""

    def __init__(self, row: Batch, kind: str, now: datetime, expires_at: datetime) -> None:
        purpose = FilePurpose.BATCH_OUTPUT if row.format == BatchFormat.OPENAI else FilePurpose.MESSAGE_BATCH_RESULTS
        owner = FileOwner(row.organization_id, row.project_id)
        self._writer = FileWriter(owner, f"{row.pk}_{kind}.jsonl", purpose, now=now, expires_at=expires_at)
        self._is_begun = False

    def add(self, line: bytes) -> None:
        """Write a line."""
        if not self._is_begun:
            self._writer.begin()
            self._is_begun = True
        self._writer.add(line)

    def close(self) -> str | None:
        """Return the file's id, None where there is none."""
        return self._writer.close().pk if self._is_begun else None


def _lines(row: Batch) -> Iterator[BatchLine]:
    """Yield a batch's lines in order."""
    after = -1
    while lines := list(BatchLine.objects.filter(batch=row, position__gt=after).order_by("position")[:_TOGETHER]):
        for line in lines:
            line.batch = row
            yield line
        after = lines[-1].position
