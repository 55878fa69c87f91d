"""Retention of files and batches: removed with all that belongs to them, when their time or retention ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.utils import timezone

from apps.batches.models import OPEN_STATUSES, Batch, BatchLine, BatchStatus, FileChunk, StoredFile, Upload
from apps.kernel.postgres import database
from apps.kernel.postgres.rows import delete_piece
from apps.logs.retention import visible_to
from apps.organizations.models import Organization, RetentionLevel

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


# Rows found by one statement.
BATCH: Final = 20
# How long clients can see that an upload has expired.
_UPLOADS_TOLD_FOR: Final = timedelta(days=1)
_REMOVERS: Final[dict[type[Model], Callable[[list[str]], None]]] = {
    StoredFile: remove_files,
    Batch: remove_batches,
    Upload: remove_uploads,
}


def purge(now: datetime) -> int:
    """Remove expired rows, and rows of organizations that no longer keep content; return how many.

    A run that is cut short is carried on by the next.
    """
    removed = _remove(StoredFile.objects.filter(expires_at__lte=now))
    removed += _remove(Batch.objects.filter(kept_until__lte=now))
    removed += _remove(Upload.objects.filter(expires_at__lte=now - _UPLOADS_TOLD_FOR))
    organizations = _organizations()
    # Rows in progress when an organization was deleted arrived after its erasure.
    keeping = Organization.objects.filter(id__in=organizations, retention_level=RetentionLevel.RETAIN)
    kept = set(keeping.exclude(status=Organization.Status.DELETED).values_list("id", flat=True))
    removed += sum(map(erase_organization, organizations - kept))
    # A plan with fewer days, since.
    for organization_id, since in visible_to(kept, now).items():
        for kind in _REMOVERS:
            removed += _remove(kind._default_manager.filter(organization_id=organization_id, created_at__lt=since))
    return removed


def erase_organization(organization_id: UUID) -> int:
    """Remove every file and batch of an organization; return how many rows."""
    return sum(_remove(kind._default_manager.filter(organization_id=organization_id)) for kind in _REMOVERS)


def _organizations() -> set[UUID]:
    found: set[UUID] = set()
    for kind in _REMOVERS:
        found.update(kind._default_manager.order_by().values_list("organization_id", flat=True).distinct())
    return found


def _remove(rows: QuerySet[Any]) -> int:
    removed = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        _REMOVERS[rows.model](ids)
        removed += len(ids)
    return removed
