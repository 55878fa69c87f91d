"""Stored files: contents in encrypted chunks in PostgreSQL, written and read a chunk at a time.

A file shows once all of it is there. Knows rows, chunks and how much a project may have. Must never know what a file is
for, nor who may see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Sum
from django.utils import timezone

from apps.batches import refusals
from apps.batches.models import FileChunk, FilePurpose, StoredFile
from apps.kernel import database
from apps.kernel.ids import new_id, random_number
from apps.organizations.models import Organization
from apps.organizations.storage_bounds import max_file_bytes, pays_nothing
from apps.responses.encrypted_json import decrypt_bytes, decrypt_json, encrypt_bytes, encrypt_json

# Bytes of a chunk in clear.
CHUNK: Final = 1024 * 1024
# Files of a project.
MAX_FILES: Final = 10_000
# How long an upload that was cut short is kept from others.
_WRITING_LASTS: Final = timedelta(hours=1)


class FileOwner(msgspec.Struct, frozen=True):
    """Whose a file is."""

    organization_id: UUID
    project_id: UUID


class FileWriter:
    """Writes one file: `add` what there is, then `close`. Inside a transaction it is written in that, else as it comes.

    It was made at `now`, from when its life is counted, however long it takes to write. Every method raises
    DatabaseError.
    """

    def __init__(
        self, owner: FileOwner, name: str, purpose: FilePurpose, *, now: datetime, expires_at: datetime, lines: int = 0
    ) -> None:
        identifier = f"file-{new_id().hex}{random_number():016x}"
        self.row = StoredFile(
            id=identifier,
            created_at=now,
            expires_at=timezone.now() + _WRITING_LASTS,
            organization_id=owner.organization_id,
            project_id=owner.project_id,
            purpose=purpose,
            sealed_name=encrypt_json(name, owner.project_id, _name_place(identifier)),
            size=0,
            lines=lines,
        )
        self._expires_at = expires_at
        self._waiting = bytearray()
        self._chunks = self._size = 0

    @classmethod
    def go_on(cls, row: StoredFile, expires_at: datetime) -> FileWriter:
        """Return a writer that adds to a file that was paused."""
        writer = cls.__new__(cls)
        writer.row, writer._expires_at, writer._waiting = row, expires_at, bytearray()
        writer._chunks, writer._size = database.read(FileChunk.objects.filter(file=row).count), row.size
        return writer

    def begin(self, size: int | None = None) -> None:
        """Make the row, of a file that will have so many bytes: its room is taken before it is written to.

        Raises InvalidRequest when it has none. Without a size nobody asks for room: results are never lost for that.
        """
        if size is None:
            database.write(partial(self.row.save, force_insert=True))
        else:
            self.row.size = size
            database.write(partial(_insert_within_room, self.row))

    def add(self, data: bytes) -> None:
        """Take in more of the content, and write what fills a chunk."""
        start = 0
        while len(self._waiting) + len(data) - start >= CHUNK:
            end = start + CHUNK - len(self._waiting)
            self._write(bytes(self._waiting) + data[start:end])
            self._waiting.clear()
            start = end
        self._waiting += data[start:]

    def close(self) -> StoredFile:
        """Write the rest, and let the file be seen; return its row."""
        self.row.is_complete = True
        return self.pause()

    def pause(self) -> StoredFile:
        """Write the rest of what there is so far, for another writer to go on; return the row."""
        if self._waiting:
            self._write(bytes(self._waiting))
            self._waiting.clear()
        self.row.size, self.row.expires_at = self._size, self._expires_at
        database.write(self.row.save)
        return self.row

    def _write(self, data: bytes) -> None:
        sealed = encrypt_bytes(data, self.row.project_id, _chunk_place(self.row.id, self._chunks))
        chunk = FileChunk(file=self.row, position=self._chunks, sealed_content=sealed)
        database.write(partial(chunk.save, force_insert=True))
        self._chunks += 1
        self._size += len(data)


def chunks_of(row: StoredFile, start: int = 0) -> Iterator[bytes]:
    """Yield a file's content, a chunk at a time; of one that was written at once from any byte on.

    Raises DatabaseError, UnreadableSecretError; KeyError for a hole.
    """
    position, skipped = divmod(start, CHUNK)
    read = position * CHUNK
    while read < row.size:
        chunk = database.read(FileChunk.objects.filter(file_id=row.pk, position=position).first)
        if chunk is None:
            raise KeyError(f"{row.pk} has no chunk {position}")
        content = decrypt_bytes(chunk.sealed_content, row.project_id, _chunk_place(row.pk, position))
        yield content[skipped:]
        position, read, skipped = position + 1, read + len(content), 0


def name_of(row: StoredFile) -> str:
    """Return a file's name. Raises UnreadableSecretError."""
    return str(decrypt_json(row.sealed_name, row.project_id, _name_place(row.pk)))


def insist_on_room(organization: Organization, size: int) -> None:
    """Raise InvalidRequest where an organization, locked by the caller, has no room for a file of so many bytes.

    Pictures behind links have room of their own.
    """
    rows = StoredFile.objects.filter(organization_id=organization.pk).exclude(purpose=FilePurpose.IMAGE_LINK)
    stored, most = rows.aggregate(size=Sum("size"))["size"] or 0, max_file_bytes(organization)
    if stored + size > most:
        raise refusals.no_room_in_organization(most, stored, pays_nothing=pays_nothing(organization))


def _insert_within_room(row: StoredFile) -> None:
    """Insert a row. Raises InvalidRequest when the project or the organization has no room for it."""
    with transaction.atomic():
        # One upload at a time counts; rows that refer to the organization are not held up.
        organization = Organization.objects.select_for_update(no_key=True).get(pk=row.organization_id)
        rows = StoredFile.objects.filter(project_id=row.project_id).exclude(purpose=FilePurpose.IMAGE_LINK)
        sums = rows.aggregate(size=Sum("size"), files=Count("pk"))
        if (sums["size"] or 0) + row.size > settings.FILE_BYTES_PER_PROJECT:
            raise refusals.no_room_in_project(settings.FILE_BYTES_PER_PROJECT, "bytes")
        if sums["files"] >= MAX_FILES:
            raise refusals.no_room_in_project(MAX_FILES, "in number")
        insist_on_room(organization, row.size)
        row.save(force_insert=True)


def _name_place(file_id: str) -> str:
    return f"file:{file_id}:name"


def _chunk_place(file_id: str, position: int) -> str:
    return f"file:{file_id}:{position}"
