"""Stored files: contents in encrypted chunks in PostgreSQL, written and read a chunk at a time.

A file is visible once all of it is there. A project and an organization may store so many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Count, Sum

from apps.batches import refusals
from apps.batches.models import FileChunk, FilePurpose, StoredFile, Upload
from apps.batches.retention import delete_files
from apps.kernel.ids import new_id, random_number
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import decrypt_bytes, decrypt_json, encrypt_bytes, encrypt_json
from apps.organizations.models import Organization
from apps.organizations.storage_bounds import max_file_bytes, pays_nothing

# Bytes of a chunk in clear.
CHUNK: Final = 1024 * 1024
# Files of a project.
MAX_FILES: Final = 10_000
# How long an upload that was cut short is kept from others.
WRITING_LASTS: Final = timedelta(hours=1)
# Purposes that do not count towards the room for files.
_WITHOUT_ROOM: Final = (FilePurpose.IMAGE_LINK, FilePurpose.UPLOAD_PART)


class FileOwner(msgspec.Struct, frozen=True):
    """Whose a file is."""

    organization_id: UUID
    project_id: UUID


def new_file(
    owner: FileOwner,
    name: str,
    purpose: FilePurpose,
    *,
    now: datetime,
    expires_at: datetime,
    prefix: str = "file-",
) -> StoredFile:
    """Return the row of a new file, which is not stored yet."""
    identifier = f"{prefix}{new_id().hex}{random_number():016x}"
    return StoredFile(
        id=identifier,
        created_at=now,
        expires_at=expires_at,
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        purpose=purpose,
        sealed_name=encrypt_json(name, owner.project_id, _name_place(identifier)),
        size=0,
    )


class FileWriter:
    """Writes one file: `add` what there is, then `close`. Inside a transaction it is written in that, else as it comes.

    It was made at `now`, from when its life is counted, however long it takes to write. Every method raises
    DatabaseError.
    """

    def __init__(
        self, owner: FileOwner, name: str, purpose: FilePurpose, *, now: datetime, expires_at: datetime
    ) -> None:
        self._begin_with(new_file(owner, name, purpose, now=now, expires_at=now + WRITING_LASTS), expires_at)

    def _begin_with(self, row: StoredFile, expires_at: datetime) -> None:
        self.row = row
        self.expires_at = expires_at
        self._waiting = bytearray()
        self._chunks = self._size = 0
        self._insert: Callable[[StoredFile], None] = insert_within_room

    @classmethod
    def of_row(cls, row: StoredFile, insert: Callable[[StoredFile], None]) -> FileWriter:
        """Return a writer of a file that is not stored yet, and kept as long as its row says.

        `insert` inserts the row, whose size is the most that it will have.
        """
        writer = cls.__new__(cls)
        writer._begin_with(row, row.expires_at)
        writer._insert = insert
        return writer

    @classmethod
    def go_on(cls, row: StoredFile, expires_at: datetime) -> FileWriter:
        """Return a writer that adds to a file that was paused."""
        writer = cls.__new__(cls)
        writer._begin_with(row, expires_at)
        writer._chunks, writer._size = database.read(FileChunk.objects.filter(file=row).count), row.size
        return writer

    def begin(self, size: int | None = None) -> None:
        """Make the row, of a file that will have at most so many bytes: its room is taken before it is written to.

        Raises InvalidRequest when it has none. Without a size no room is checked: results are never lost.
        """
        if size is None:
            database.write(partial(self.row.save, force_insert=True))
        else:
            self.row.size = size
            database.write(partial(self._insert, self.row))

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
        self.row.size, self.row.expires_at = self._size, self.expires_at
        # One that was removed meanwhile stays so.
        database.write(partial(self.row.save, force_update=True))
        return self.row

    def abandon(self) -> None:
        """Remove what there is of it; where that fails it goes when its time is over."""
        with suppress(DatabaseError):
            delete_files(StoredFile.objects.filter(pk=self.row.pk, is_complete=False))

    def _write(self, data: bytes) -> None:
        sealed = encrypt_bytes(data, self.row.project_id, _chunk_place(self.row.id, self._chunks))
        chunk = FileChunk(file=self.row, position=self._chunks, sealed_content=sealed)
        database.write(partial(chunk.save, force_insert=True))
        self._chunks += 1
        self._size += len(data)


def chunks_of(row: StoredFile, start: int = 0) -> Iterator[bytes]:
    """Yield a file's content, a chunk at a time; of one that was not paused from any byte on.

    Raises DatabaseError, UnreadableSecretError; KeyError for a hole.
    """
    first = 0
    for written_as, size in file_parts(row):
        if start < size:
            yield from _chunks_of_part(row, written_as, size, first, start)
        start = max(0, start - size)
        first += -(-size // CHUNK)


def file_parts(row: StoredFile) -> list[tuple[str, int]]:
    """Return the ids and sizes under which a file's chunks were written: its parts', or its own.

    Raises UnreadableSecretError.
    """
    if not row.sealed_parts:
        return [(row.pk, row.size)]
    return [(str(pk), int(size)) for pk, size in decrypt_json(row.sealed_parts, row.project_id, _parts_place(row.pk))]


def seal_parts(row: StoredFile, parts: Sequence[tuple[str, int]]) -> None:
    """Have a file's row say which parts its chunks were written as."""
    row.sealed_parts = encrypt_json(parts, row.project_id, _parts_place(row.pk))


def _chunks_of_part(row: StoredFile, written_as: str, size: int, first: int, start: int) -> Iterator[bytes]:
    position, skipped = divmod(start, CHUNK)
    read = position * CHUNK
    while read < size:
        chunk = database.read(FileChunk.objects.filter(file_id=row.pk, position=first + position).first)
        if chunk is None:
            raise KeyError(f"{row.pk} has no chunk {first + position}")
        content = decrypt_bytes(chunk.sealed_content, row.project_id, _chunk_place(written_as, position))
        yield content[skipped:]
        position, read, skipped = position + 1, read + len(content), 0


def name_of(row: StoredFile) -> str:
    """Return a file's name. Raises UnreadableSecretError."""
    return str(decrypt_json(row.sealed_name, row.project_id, _name_place(row.pk)))


def name_in(upload: Upload) -> str:
    """Return the name of an upload's file, however that goes. Raises UnreadableSecretError."""
    return str(decrypt_json(upload.sealed_name, upload.project_id, _name_place(upload.file_id)))


def insist_on_room(organization: Organization, size: int) -> None:
    """Raise InvalidRequest where an organization, locked by the caller, has no room for a file of so many bytes.

    Pictures behind links have room of their own, and parts of uploads their upload's.
    """
    rows = StoredFile.objects.filter(organization_id=organization.pk).exclude(purpose__in=_WITHOUT_ROOM)
    stored, most = rows.aggregate(size=Sum("size"))["size"] or 0, max_file_bytes(organization)
    if stored + size > most:
        raise refusals.no_room_in_organization(most, stored, pays_nothing=pays_nothing(organization))


def insert_within_room(row: StoredFile) -> None:
    """Insert a row, whose size is the room that it takes.

    Raises InvalidRequest when the project or the organization has no room for it.
    """
    with transaction.atomic():
        # One upload at a time counts; rows that refer to the organization are not held up.
        organization = Organization.objects.select_for_update(no_key=True).get(pk=row.organization_id)
        rows = StoredFile.objects.filter(project_id=row.project_id).exclude(purpose__in=_WITHOUT_ROOM)
        sums = rows.aggregate(size=Sum("size"), files=Count("pk"))
        if (sums["size"] or 0) + row.size > settings.FILE_BYTES_PER_PROJECT:
            raise refusals.no_room_in_project(settings.FILE_BYTES_PER_PROJECT, "bytes")
        if sums["files"] >= MAX_FILES:
            raise refusals.no_room_in_project(MAX_FILES, "in number")
        insist_on_room(organization, row.size)
        row.save(force_insert=True)


def _name_place(file_id: str) -> str:
    return f"file:{file_id}:name"


def _parts_place(file_id: str) -> str:
    return f"file:{file_id}:parts"


def _chunk_place(file_id: str, position: int) -> str:
    return f"file:{file_id}:{position}"
