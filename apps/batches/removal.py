"""Removal of files, batches and uploads with all that belongs to them, in pieces.

A file may have hundreds of chunks and a batch 50,000 lines. The row goes last: an interrupted removal is completed by
the next run of `retention`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.db import DatabaseError
from django.db.models import QuerySet
from django.utils import timezone

from apps.batches.models import OPEN_STATUSES, Batch, BatchLine, BatchStatus, FileChunk, StoredFile, Upload
from apps.kernel.postgres import database
from apps.kernel.postgres.deletion import delete_piece

# Chunks (a megabyte each) and lines removed by one statement.
MAX_CHUNKS: Final = 16
MAX_LINES: Final = 1_000


def hide_files(files: QuerySet[StoredFile]) -> None:
    """Make files invisible to clients at once, and expire them. Raises DatabaseError."""
    files.update(is_complete=False, expires_at=timezone.now())


def delete_files(files: QuerySet[StoredFile]) -> None:
    """Delete files for a request: they are invisible at once, and then removed. Raises DatabaseError."""
    ids = database.read(lambda: list(files.values_list("pk", flat=True)))
    database.write(partial(hide_files, StoredFile.objects.filter(pk__in=ids)))
    with suppress(DatabaseError):
        # `retention` removes the rest.
        remove_files(ids)


def remove_files(ids: list[str]) -> None:
    """Remove files, each with its chunks first. Raises DatabaseError."""
    for file_id in ids:
        _remove_pieces(FileChunk.objects.filter(file_id=file_id), MAX_CHUNKS)
        database.write(StoredFile.objects.filter(pk=file_id).delete)


def remove_batches(ids: list[str]) -> None:
    """Remove batches, each with its lines first; no worker goes on with them. Raises DatabaseError."""
    for batch_id in ids:
        row = Batch.objects.filter(pk=batch_id)
        database.write(partial(row.filter(status__in=OPEN_STATUSES).update, status=BatchStatus.FAILED))
        remove_lines(batch_id)
        database.write(row.delete)


def remove_lines(batch_id: str) -> None:
    """Remove the lines of a batch. Raises DatabaseError."""
    _remove_pieces(BatchLine.objects.filter(batch_id=batch_id), MAX_LINES)


def remove_uploads(ids: list[str]) -> None:
    """Remove uploads, each with its parts first. Raises DatabaseError."""
    for upload_id in ids:
        remove_parts(upload_id)
        database.write(Upload.objects.filter(pk=upload_id).delete)


def remove_parts(upload_id: str) -> None:
    """Remove the parts of an upload. Raises DatabaseError."""
    parts = StoredFile.objects.filter(upload_id=upload_id)
    remove_files(database.read(lambda: list(parts.values_list("pk", flat=True))))


def _remove_pieces(rows: QuerySet[Any], piece: int) -> None:
    """Delete rows, each piece within the time limit of a request's writes."""
    while database.write(partial(delete_piece, rows, piece)):
        pass
