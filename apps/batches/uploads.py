"""Uploads: a file that arrives in parts, which become its chunks when it is complete.

The file takes its room when the upload is created. Nothing is written twice: completing moves the parts' chunks into
the file, in one transaction, and the file's row says in which order, and as what, they were encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import md5
from typing import Final

from django.db import DatabaseError, transaction
from django.db.models import Count, F, Q, Sum
from django.utils import timezone

from apps.batches import refusals
from apps.batches.file_fields import MAX_PARTS, Completion, NewUpload
from apps.batches.models import FileChunk, FilePurpose, StoredFile, Upload, UploadStatus
from apps.batches.retention import hide_files, remove_files
from apps.batches.stored_files import CHUNK, FileOwner, chunks_of, file_parts, insert_within_room, new_file, seal_parts
from apps.gateway.access.policy import Policy
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses.public_ids import is_public_id, new_public_id
from apps.responses.retention import expiry_of, keeps

# How long parts are taken, as OpenAI's API has it.
LASTS: Final = timedelta(hours=1)
EXPIRED: Final = "expired"
# Parts that were sent again, as their answers were lost, are kept beside those that count.
_MAX_REPEATS: Final = 2


def create(policy: Policy, asked: NewUpload) -> Upload:
    """Create an upload, and take room for its file. Raises InvalidRequest for want of room, DatabaseError."""
    now = timezone.now()
    owner = FileOwner(policy.organization_id, policy.project_id)
    file = new_file(owner, asked.name, asked.purpose, now=now, expires_at=now + LASTS)
    file.size = asked.size
    row = Upload(
        id=new_public_id("upload"),
        created_at=now,
        expires_at=now + LASTS,
        organization_id=policy.organization_id,
        project_id=policy.project_id,
        purpose=asked.purpose,
        size=asked.size,
        sealed_name=file.sealed_name,
        file_id=file.pk,
        lifetime=asked.lifetime,
    )

    def insert() -> None:
        with transaction.atomic():
            insert_within_room(file)
            row.save(force_insert=True)

    database.write(insert)
    return row


def access_upload(policy: Policy, upload_id: str) -> Upload:
    """Return an upload of the caller's project. Raises NotFound, DatabaseError."""
    row = None
    if keeps(policy) and is_public_id(upload_id):
        row = database.read(Upload.objects.filter(pk=upload_id, project_id=policy.project_id).first)
    if row is None:
        raise refusals.no_upload(upload_id)
    return row


def status_of(row: Upload) -> str:
    """Return the status of an upload as clients see it."""
    is_over = row.status == UploadStatus.PENDING and row.expires_at <= timezone.now()
    return EXPIRED if is_over else row.status


def insist_on_pending(row: Upload) -> None:
    """Raise InvalidRequest for an upload that takes no parts any more."""
    status = status_of(row)
    if status != UploadStatus.PENDING:
        raise refusals.upload_is_over(row.pk, status)


def new_part(row: Upload) -> StoredFile:
    """Return the row of a new part, which is not stored yet."""
    owner = FileOwner(row.organization_id, row.project_id)
    part = new_file(
        owner, "part", FilePurpose.UPLOAD_PART, now=timezone.now(), expires_at=row.expires_at, prefix="part_"
    )
    part.upload_id = row.pk
    return part


def insert_part(part: StoredFile) -> None:
    """Insert a part's row. Raises InvalidRequest where its upload takes no more."""
    with transaction.atomic():
        row = _lock(str(part.upload_id))
        insist_on_pending(row)
        sums = StoredFile.objects.filter(upload=row).aggregate(size=Sum("size"), parts=Count("pk"))
        if sums["parts"] >= MAX_PARTS or (sums["size"] or 0) + part.size > _MAX_REPEATS * row.size + CHUNK:
            raise refusals.too_many_parts(MAX_PARTS, row.size)
        part.save(force_insert=True)


def complete(row: Upload, asked: Completion) -> tuple[Upload, StoredFile]:
    """Make a file of an upload's parts; a repetition with the same parts changes nothing. Return the two.

    Raises InvalidRequest naming the field, DatabaseError.
    """
    if row.status == UploadStatus.COMPLETED:
        return row, _completed_before(row, asked.part_ids)
    insist_on_pending(row)
    parts = database.read(partial(_parts_in_order, row, asked.part_ids))
    if asked.md5 is not None and _md5_of(parts) != asked.md5:
        raise InvalidRequest("md5 is not that of the parts", param="md5")
    now = timezone.now()
    expires_at = database.read(partial(expiry_of, row.organization_id, now))
    if row.lifetime is not None:
        expires_at = min(expires_at, now + timedelta(seconds=row.lifetime))
    completed = database.write(partial(_complete, row.pk, asked.part_ids, now, expires_at))
    _remove_rest(row)
    return completed


def cancel(row: Upload) -> Upload:
    """End an upload: its parts and its file's room go. Raises InvalidRequest for one that is over, DatabaseError."""
    cancelled = database.write(partial(_cancel, row.pk))
    _remove_rest(row)
    return cancelled


def file_of(row: Upload) -> StoredFile | None:
    """Return the file of an upload that was completed, None for one that is gone. Raises DatabaseError."""
    return database.read(StoredFile.objects.filter(pk=row.file_id, is_complete=True).first)


def _complete(
    upload_id: str, part_ids: Sequence[str], now: datetime, expires_at: datetime
) -> tuple[Upload, StoredFile]:
    with transaction.atomic():
        row = _lock(upload_id)
        if row.status == UploadStatus.COMPLETED:
            return row, _completed_before(row, part_ids)
        insist_on_pending(row)
        parts = _parts_in_order(row, part_ids)
        file = StoredFile.objects.get(pk=row.file_id)
        first = 0
        for part in parts:
            FileChunk.objects.filter(file=part).update(file=file, position=F("position") + first)
            first += -(-part.size // CHUNK)
        seal_parts(file, [(part.pk, part.size) for part in parts])
        file.created_at, file.expires_at, file.is_complete = now, expires_at, True
        file.lines = sum(part.lines for part in parts) + 1 if row.purpose == FilePurpose.BATCH else 0
        file.save(force_update=True)
        hide_files(StoredFile.objects.filter(upload=row))
        row.status = UploadStatus.COMPLETED
        row.save(update_fields=["status"])
    return row, file


def _completed_before(row: Upload, part_ids: Sequence[str]) -> StoredFile:
    """Return the file that these parts were made into. Raises InvalidRequest where it was others, or it is gone."""
    file = file_of(row)
    if file is None or [part_id for part_id, _ in file_parts(file)] != list(part_ids):
        raise refusals.upload_is_over(row.pk, row.status)
    return file


def _cancel(upload_id: str) -> Upload:
    with transaction.atomic():
        row = _lock(upload_id)
        if row.status != UploadStatus.CANCELLED:
            insist_on_pending(row)
            hide_files(StoredFile.objects.filter(Q(upload=row) | Q(pk=row.file_id, is_complete=False)))
            row.status = UploadStatus.CANCELLED
            row.save(update_fields=["status"])
    return row


def _remove_rest(row: Upload) -> None:
    """Remove the hidden files of an upload that has ended; `retention` removes those that it could not."""
    hidden = StoredFile.objects.filter(Q(upload=row) | Q(pk=row.file_id, is_complete=False))
    with suppress(DatabaseError):
        remove_files(database.read(lambda: list(hidden.values_list("pk", flat=True))))


def _lock(upload_id: str) -> Upload:
    """Return an upload's row, which is this transaction's until its end. Raises NotFound for one that is gone."""
    row = Upload.objects.select_for_update().filter(pk=upload_id).first()
    if row is None:
        raise refusals.no_upload(upload_id)
    return row


def _parts_in_order(row: Upload, part_ids: Sequence[str]) -> list[StoredFile]:
    """Return the parts of these ids. Raises InvalidRequest for one that is not there, or too few bytes or too many."""
    found: Mapping[str, StoredFile] = StoredFile.objects.filter(upload=row, is_complete=True).in_bulk(list(part_ids))
    for part_id in part_ids:
        if part_id not in found:
            raise InvalidRequest(f"part_ids names {part_id}, which is no part of this upload", param="part_ids")
    size = sum(part.size for part in found.values())
    if size != row.size:
        raise InvalidRequest(
            f"The parts have {size} bytes together, and the upload was created with {row.size}", param="part_ids"
        )
    return [found[part_id] for part_id in part_ids]


def _md5_of(parts: Sequence[StoredFile]) -> str:
    digest = md5(usedforsecurity=False)
    for part in parts:
        for chunk in chunks_of(part):
            offload(len(chunk), partial(digest.update, chunk))
    return digest.hexdigest()
