"""Completion of a batch: once every line has ended, results are written to files in order, and the lines go.

A piece at a time, each in one transaction and each of another organization's batch where several wait. A file shows
with its last piece, so there are files with every line once, or none yet.

Sources of results: OpenAI's Batch API (`BatchRequestOutput`; a refusal is a response with its status, `error` is for
lines without an answer), `anthropic.types.messages.MessageBatchIndividualResponse`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.batches import line_call
from apps.batches.batch_rows import end_some_lines, waiting_lines
from apps.batches.input_lines import WrongInput, read_piece
from apps.batches.line_call import LineResult, line_id, refusal_of, request_of, result_of
from apps.batches.models import (
    RUNNING_STATUSES,
    Batch,
    BatchFormat,
    BatchLine,
    BatchStatus,
    FilePurpose,
    LineOutcome,
    StoredFile,
)
from apps.batches.stored_files import FileOwner, FileWriter
from apps.kernel.concurrency.fairness import FairTurns
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.responses.retention import expiry_of

# Code and message for lines without an answer.
_NOT_ANSWERED: Final = {
    LineOutcome.CANCELLED: ("batch_cancelled", "This request was not executed before the batch was cancelled."),
    LineOutcome.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}
_LOST: Final = ("server_error", "The result of this request can no longer be read.")
_ANTHROPIC_WORDS: Final = {LineOutcome.CANCELLED: "canceled", LineOutcome.EXPIRED: "expired"}

ResultWriter = Callable[[BatchLine], bytes]


def write_openai(line: BatchLine) -> bytes:
    """Return a line of an output or error file."""
    identifier, result = line_id(line.batch, line.position), _find_result(line)
    response, error = None, None
    if result is not None:
        response = {"status_code": result.status, "request_id": identifier, "body": result.body}
    else:
        code, message = _NOT_ANSWERED.get(LineOutcome(line.outcome), _LOST)
        error = {"code": code, "message": message}
    return _line({"id": identifier, "custom_id": _custom_id(line), "response": response, "error": error})


def write_anthropic(line: BatchLine) -> bytes:
    """Return a line of the results of a message batch."""
    result, outcome = _find_result(line), dict[str, Any]()
    if line.outcome in _ANTHROPIC_WORDS:
        outcome = {"type": _ANTHROPIC_WORDS[LineOutcome(line.outcome)]}
    elif result is None:
        outcome = {"type": "errored", "error": {"type": "error", "error": {"type": "api_error", "message": _LOST[1]}}}
    elif line.outcome == LineOutcome.SUCCEEDED:
        outcome = {"type": "succeeded", "message": result.body}
    else:
        outcome = {"type": "errored", "error": result.body}
    return _line({"custom_id": _custom_id(line), "result": outcome})


WRITERS: Final[dict[str, ResultWriter]] = {
    BatchFormat.OPENAI: write_openai,
    BatchFormat.ANTHROPIC: write_anthropic,
}


def _find_result(line: BatchLine) -> LineResult | None:
    try:
        return refusal_of(line.batch) if line.outcome == LineOutcome.UNPAID else result_of(line)
    except UnreadableSecretError:
        return None


def _custom_id(line: BatchLine) -> str | None:
    try:
        return request_of(line).custom_id
    except UnreadableSecretError:
        return None


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


log = structlog.get_logger(__name__)

# Lines that are read by one statement; lines and bytes of results after which a piece ends.
_READ_TOGETHER: Final = 50
MAX_PIECE_LINES: Final = 500
MAX_PIECE_BYTES: Final = 4 * 1024 * 1024

TURNS: Final[FairTurns[UUID]] = FairTurns()
_COUNTED_AS: Final = {LineOutcome.UNPAID: LineOutcome.ERRORED}


def complete_some() -> bool:
    """End the lines of a batch that are past their time or cancelled, or write a piece of the results of a batch all of
    whose lines have ended: of the organization whose turn it is. Tell whether there was one. Raises DatabaseError."""
    try:
        now = timezone.now()
        ended = Batch.objects.exclude(lines__outcome=LineOutcome.OPEN).filter(status__in=RUNNING_STATUSES)
        ended.update(status=BatchStatus.FINALIZING, finalizing_at=now)
        return any(_complete_some(batch_id, now) for batch_id in _first_of_each_organization(now))
    finally:
        database.release_connection()


def _first_of_each_organization(now: datetime) -> list[str]:
    """Return the oldest batch of each organization that has something to end, the least recently served one first."""
    rows = Batch.objects.filter(Q(status=BatchStatus.FINALIZING) | _has_lines_to_end(now))
    heads = rows.order_by("organization_id", "created_at").distinct("organization_id")
    return [pk for pk, _ in TURNS.order(heads.values_list("pk", "organization_id"), lambda head: head[1])]


def _has_lines_to_end(now: datetime) -> Q:
    over = Q(status=BatchStatus.IN_PROGRESS, expires_at__lte=now) | Q(status=BatchStatus.CANCELLING)
    return over & Q(Exists(waiting_lines(BatchLine.objects.filter(batch=OuterRef("pk")), now)))


def _complete_some(batch_id: str, now: datetime) -> bool:
    """Do a piece for a batch, unless another worker does; tell whether this one did."""
    with transaction.atomic():
        rows: QuerySet[Batch] = Batch.objects.select_for_update(skip_locked=True)
        row = rows.filter(pk=batch_id, status__in=(*RUNNING_STATUSES, BatchStatus.FINALIZING)).first()
        if row is None:
            return False
        TURNS.take(row.organization_id)
        if row.status == BatchStatus.CANCELLING:
            end_some_lines(row, LineOutcome.CANCELLED, now)
        elif row.status == BatchStatus.IN_PROGRESS:
            end_some_lines(row, LineOutcome.EXPIRED, now)
        else:
            _write_some_results(row)
    return True


def _write_some_results(row: Batch) -> None:
    """Write the results that follow those that are written, and end the batch with the last of them."""
    now = timezone.now()
    expires_at = expiry_of(row.organization_id, now)
    if row.output_lifetime is not None:
        expires_at = min(expires_at, now + timedelta(seconds=row.output_lifetime))
    write, is_openai = WRITERS[row.format], row.format == BatchFormat.OPENAI
    output = _ResultFile(row, row.output_file_id, "output" if is_openai else "results", now, expires_at)
    errors = _ResultFile(row, row.error_file_id, "error", now, expires_at) if is_openai else output
    lines, is_last = _read_never_made(row) if row.in_progress_at is None else _read_lines(row)
    for line in lines:
        (output if line.outcome == LineOutcome.SUCCEEDED else errors).add(write(line))
        column = _COUNTED_AS.get(LineOutcome(line.outcome), line.outcome)
        setattr(row, column, getattr(row, column) + 1)
    BatchLine.objects.filter(pk__in=[line.pk for line in lines if line.pk is not None]).delete()
    row.output_file_id = output.end(is_last=is_last)
    row.error_file_id = errors.end(is_last=is_last) if is_openai else None
    if is_last:
        _end(row)
    row.save()


def _end(row: Batch) -> None:
    row.status, row.ended_at = _final_status(row), timezone.now()
    row.total = row.succeeded + row.errored + row.cancelled + row.expired
    log.info("batches.completed", batch=row.pk, status=row.status, lines=row.total)


def _final_status(row: Batch) -> BatchStatus:
    if row.cancelling_at is not None:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if row.expired else BatchStatus.COMPLETED


class _ResultFile:
    """A file of results, which is begun with its first line and gone on with by every piece."""

    def __init__(self, row: Batch, file_id: str | None, kind: str, now: datetime, expires_at: datetime) -> None:
        self._begun = StoredFile.objects.filter(pk=file_id, is_complete=False).first() if file_id else None
        if self._begun is not None:
            self._writer = FileWriter.go_on(self._begun, expires_at)
        else:
            is_openai = row.format == BatchFormat.OPENAI
            purpose = FilePurpose.BATCH_OUTPUT if is_openai else FilePurpose.MESSAGE_BATCH_RESULTS
            owner = FileOwner(row.organization_id, row.project_id)
            self._writer = FileWriter(owner, f"{row.pk}_{kind}.jsonl", purpose, now=now, expires_at=expires_at)

    def add(self, line: bytes) -> None:
        """Write a line."""
        if self._begun is None:
            self._writer.begin()
            self._begun = self._writer.row
        self._writer.add(line)

    def end(self, *, is_last: bool) -> str | None:
        """Write the rest of a piece, and show the file after the last; return its id, None if there is no file."""
        if self._begun is None:
            return None
        return (self._writer.close() if is_last else self._writer.pause()).pk


def _read_lines(row: Batch) -> tuple[list[BatchLine], bool]:
    """Return the first lines of a batch that are still there, and whether none follows."""
    lines, size = list[BatchLine](), 0
    rows = BatchLine.objects.filter(batch=row).order_by("position")
    while len(lines) < MAX_PIECE_LINES and size < MAX_PIECE_BYTES:
        found = list(rows[len(lines) : len(lines) + _READ_TOGETHER])
        if not found:
            return lines, True
        for line in found:
            line.batch = row
            size += len(line.sealed_result)
        lines += found
    return lines, False


def _read_never_made(row: Batch) -> tuple[list[BatchLine], bool]:
    """Return some lines of a batch that was cancelled before they were made, from its input, and whether none follows.

    Invalid lines have no result. Stores in the row how far the input was read.
    """
    try:
        piece = read_piece(row)
    except WrongInput:
        return [], True
    row.bytes_read, row.lines_read, row.lines_prepared = piece.bytes_read, piece.lines_read, piece.lines_prepared
    lines = list[BatchLine]()
    for placed in piece.requests:
        sealed = line_call.encrypt_request(row, placed.position, placed.request)
        line = BatchLine(batch=row, position=placed.position, sealed_request=sealed, outcome=LineOutcome.CANCELLED)
        lines.append(line)
    return lines, piece.is_last
