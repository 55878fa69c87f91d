"""Preparation of a batch: its input is read and every line validated, before the first is answered.

All in one transaction: a batch has all of its lines or none. Knows the order. Must never know how a line is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import msgspec
import structlog
from django.db import transaction
from django.utils import timezone

from apps.batches import line_rows
from apps.batches.batch_rows import encrypt_errors
from apps.batches.line_format import MOST_ERRORS, MOST_LINES, LineError, LineReader, LineRequest, WrongLine, lines_of
from apps.batches.models import Batch, BatchLine, BatchStatus, StoredFile
from apps.batches.stored_files import chunks_of
from apps.kernel import database
from apps.kernel.encryption import UnreadableSecretError

log = structlog.get_logger(__name__)

# Lines that are written by one statement.
_TOGETHER = 500


class _WrongInput(ValueError):
    """An input that makes no batch: what is wrong with it."""

    def __init__(self, errors: list[LineError]) -> None:
        super().__init__(errors[0].message)
        self.errors = errors


def prepare_one() -> bool:
    """Prepare the batch that has waited longest; tell whether there was one. Raises DatabaseError."""
    try:
        with transaction.atomic():
            waiting = Batch.objects.select_for_update(skip_locked=True).filter(status=BatchStatus.VALIDATING)
            row = waiting.order_by("created_at").first()
            if row is None:
                return False
            try:
                with transaction.atomic():
                    _prepare(row)
            except _WrongInput as wrong:
                _fail(row, wrong.errors)
    finally:
        database.release_connection()
    return True


def _prepare(row: Batch) -> None:
    """Write the lines of a batch. Raises _WrongInput."""
    # Of a batch whose input has gone since.
    file = StoredFile.objects.filter(pk=row.input_file_id, project_id=row.project_id, is_complete=True).first()
    if file is None:
        raise _WrongInput([LineError("invalid_file", "The input file is no longer there", "input_file_id")])
    now, total = timezone.now(), 0
    lines = enumerate(_read(row, file))
    for together in iter(partial(lambda: list(islice(lines, _TOGETHER))), []):
        BatchLine.objects.bulk_create(
            [
                BatchLine(
                    batch=row,
                    position=position,
                    sealed_request=line_rows.encrypt_request(row, position, request),
                    lease_until=now,
                )
                for position, request in together
            ]
        )
        total += len(together)
    is_cancelled = row.cancelling_at is not None
    row.status = BatchStatus.CANCELLING if is_cancelled else BatchStatus.IN_PROGRESS
    row.in_progress_at, row.total = now, total
    row.save(update_fields=["status", "in_progress_at", "total"])
    log.info("batches.prepared", batch=row.pk, lines=total)


def _read(row: Batch, file: StoredFile) -> Iterator[LineRequest]:
    """Yield what the lines ask, as long as nothing is wrong with them. Raises _WrongInput at the end otherwise."""
    reader, errors, count = LineReader(row.endpoint), list[LineError](), 0
    try:
        for number, text in enumerate(lines_of(chunks_of(file)), 1):
            if not text.strip():
                continue
            count += 1
            if count > MOST_LINES:
                raise _WrongInput([LineError("too_many_tasks", f"A batch may have {MOST_LINES} lines", line=number)])
            try:
                request = reader.read(text, number)
            except WrongLine as wrong:
                errors.append(wrong.error)
                if len(errors) >= MOST_ERRORS:
                    break
            else:
                if not errors:
                    yield request
    except (UnreadableSecretError, KeyError):
        raise _WrongInput([LineError("invalid_file", "The input file cannot be read", "input_file_id")]) from None
    if errors:
        raise _WrongInput(errors)
    if not count:
        raise _WrongInput([LineError("empty_file", "The input file has no lines", "input_file_id")])


def _fail(row: Batch, errors: list[LineError]) -> None:
    row.status, row.ended_at, row.errored = BatchStatus.FAILED, timezone.now(), row.total
    row.sealed_errors = encrypt_errors(row, [msgspec.structs.asdict(error) for error in errors])
    row.save(update_fields=["status", "ended_at", "errored", "sealed_errors"])
    log.info("batches.failed", batch=row.pk, errors=len(errors))
