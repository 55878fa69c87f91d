"""Work on batches: inputs are prepared, lines begun and results written, for as long as there is something to do.

The state is in PostgreSQL: a lost wake-up, or one too many, changes nothing. An input is prepared a piece at a time,
each in one transaction and each of another organization's batch where several wait: a crowd of one tenant's batches
keeps another's waiting for one piece. No line is answered before all of them are there.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final
from uuid import UUID

import gevent
import msgspec
import structlog
from django.db import DatabaseError, transaction
from django.utils import timezone
from gevent.monkey import is_module_patched

from apps.batches import line_call, line_runs
from apps.batches.batch_rows import encrypt_errors, errors_of
from apps.batches.completion import complete_some
from apps.batches.input_lines import MAX_ERRORS, InputPiece, WrongInput, read_piece
from apps.batches.models import OPEN_STATUSES, Batch, BatchLine, BatchStatus
from apps.batches.native.jobs import advance_one
from apps.batches.retention import remove_lines
from apps.kernel.concurrency.fairness import FairTurns
from apps.kernel.concurrency.turn_queue import let_others_go_on
from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database

TURNS: Final[FairTurns[UUID]] = FairTurns()
_CURSOR: Final = ("bytes_read", "lines_read", "lines_prepared")


def prepare_some() -> bool:
    """Prepare a piece of the batch whose turn it is; tell whether there was one. Raises DatabaseError."""
    try:
        return any(_prepare_some(batch_id) for batch_id in _first_of_each_organization())
    finally:
        database.release_connection()


def _first_of_each_organization() -> list[str]:
    """Return the batch of each organization that has waited longest, that of the least recently served first."""
    waiting = Batch.objects.filter(status=BatchStatus.VALIDATING).order_by("organization_id", "created_at")
    heads = waiting.distinct("organization_id").values_list("pk", "organization_id")
    return [batch_id for batch_id, _ in TURNS.order(heads, lambda head: head[1])]


def _prepare_some(batch_id: str) -> bool:
    """Prepare a piece of a batch, unless another worker does; tell whether this one did."""
    with transaction.atomic():
        waiting = Batch.objects.select_for_update(skip_locked=True).filter(status=BatchStatus.VALIDATING)
        row = waiting.filter(pk=batch_id).first()
        if row is None:
            return False
        TURNS.take(row.organization_id)
        if row.cancelling_at is not None:
            _give_up(row)
            return True
        try:
            piece = read_piece(row)
        except WrongInput as wrong:
            _fail(row, [msgspec.structs.asdict(wrong.error)])
        else:
            _take_in(row, piece)
    return True


def _take_in(row: Batch, piece: InputPiece) -> None:
    """Write the lines of a piece, or what is wrong with them; end with the last piece, or too many errors."""
    errors = [*errors_of(row), *map(msgspec.structs.asdict, piece.errors)][:MAX_ERRORS]
    if len(errors) >= MAX_ERRORS or (errors and piece.is_last):
        _fail(row, errors)
        return
    now = timezone.now()
    if errors:
        # Nothing of it will be answered: the rest is only looked at.
        remove_lines(row.pk)
        row.sealed_errors = encrypt_errors(row, errors)
    else:
        BatchLine.objects.bulk_create(
            [
                BatchLine(
                    batch=row,
                    position=placed.position,
                    custom_id_digest=placed.custom_id_digest,
                    sealed_request=line_call.encrypt_request(row, placed.position, placed.request),
                    lease_until=now,
                )
                for placed in piece.requests
            ]
        )
    for name in _CURSOR:
        setattr(row, name, getattr(piece, name))
    changed: list[str] = [*_CURSOR, "sealed_errors"]
    if piece.is_last:
        row.status, row.in_progress_at, row.total = BatchStatus.IN_PROGRESS, now, piece.lines_prepared
        row.lines_counted = row.total
        changed += ["status", "in_progress_at", "total", "lines_counted"]
        log.info("batches.prepared", batch=row.pk, lines=row.total)
    row.save(update_fields=changed)


def _give_up(row: Batch) -> None:
    """Have the results of a batch written that was cancelled before all of its lines were there: it needs none."""
    remove_lines(row.pk)
    row.status, row.finalizing_at = BatchStatus.FINALIZING, timezone.now()
    row.bytes_read = row.lines_read = row.lines_prepared = 0
    row.save(update_fields=["status", "finalizing_at", *_CURSOR])
    log.info("batches.given_up", batch=row.pk)


def _fail(row: Batch, errors: list[dict[str, Any]]) -> None:
    remove_lines(row.pk)
    row.status, row.ended_at, row.errored = BatchStatus.FAILED, timezone.now(), row.total
    row.sealed_errors = encrypt_errors(row, errors)
    row.save(update_fields=["status", "ended_at", "errored", "sealed_errors"])
    log.info("batches.failed", batch=row.pk, errors=len(errors))


log = structlog.get_logger(__name__)

# Seconds until another process may have left work.
_LOOK: Final = 0.5
_GATHER: Final = 0.02
_working = _stopping = False


def work(seconds: float) -> None:
    """Work on batches until nothing is to be done just now, or so many seconds have passed. One at a time a process."""
    global _working
    if _working or _stopping:
        return
    _working = True
    try:
        _work_until(time.monotonic() + seconds)
    except (DatabaseError, Overloaded) as error:
        log.warning("batches.not_worked", error=type(error).__name__)
    finally:
        _working = False


def stop() -> None:
    """Begin nothing more, and hand over what this process has not ended: it is about to end itself."""
    global _stopping
    _stopping = True
    line_runs.WORK.let_go()


def _work_until(deadline: float) -> None:
    is_open = partial(Batch.objects.filter(status__in=OPEN_STATUSES).exists)
    begun, looked_at, advanced = 0, 0.0, False
    while not _stopping and time.monotonic() < deadline:
        looks = advanced or not begun or time.monotonic() - looked_at > _LOOK
        if looks:
            if not line_runs.JOBS and not database.read(is_open):
                return
            # A piece of each: none of them waits until another has no more to do.
            pieces = [prepare_some(), complete_some(), advance_one()]
            advanced, looked_at = any(pieces), time.monotonic()
        begun = line_runs.begin_lines()
        if is_module_patched("socket"):
            _wait(advanced, begun)
        elif looks and not (advanced or begun):
            return


def _wait(advanced: bool, begun: int) -> None:
    """Wait until there may be more to do: at once, as long as it goes on without a line's having ended."""
    if advanced:
        # Lines that are under way have their turn.
        let_others_go_on()
    elif not begun or line_runs.JOBS:
        line_runs.ENDED.clear()
        line_runs.ENDED.wait(_LOOK)
        # Others that end about now are followed together.
        gevent.sleep(_GATHER)
