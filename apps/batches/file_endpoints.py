"""`/v1/files`: upload, list, retrieve, delete and download files. OpenAI's format, and Anthropic's for its clients.

`/v1/uploads`: create an upload, add parts to it, complete or cancel it. OpenAI's format.

A form is read as it arrives, and its file is written to the store a chunk at a time. Until all of it has arrived, the
file takes room and is invisible. An incomplete file is removed at once or, if the process ended, by the next purge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from mimetypes import guess_type
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
from django.db.models import QuerySet
from django.utils import timezone

from apps.batches import refusals, uploads
from apps.batches.access import access_file, beyond, insist_on_keeping, page_of, visible_files
from apps.batches.file_fields import (
    PURPOSES,
    Listing,
    max_bytes,
    read_anthropic_fields,
    read_completion,
    read_file_fields,
    read_limit,
    read_listing,
    read_name,
    read_new_upload,
)
from apps.batches.models import FilePurpose, StoredFile, Upload
from apps.batches.retention import delete_files
from apps.batches.stored_files import CHUNK, FileOwner, FileWriter, chunks_of, name_in, name_of
from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import IncomingBody, read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, PartHead, parts_of
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.anthropic import CLIENT as ANTHROPIC
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import FORM_ROOM, MAX_FILE_PART
from apps.kernel.postgres import database
from apps.responses.items import last_of, list_object
from apps.responses.retention import expiry_of

Record = dict[str, Any]

_USUAL_PAGE = 10_000


def create_file(request: ClientRequest) -> ClientResponse:
    """Store a file that a form brings, as it arrives."""
    read = read_anthropic_fields if _is_anthropics(request) else read_file_fields

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        now = timezone.now()
        latest = database.read(partial(expiry_of, policy.organization_id, now))

        def begin(head: PartHead, fields: Mapping[str, str]) -> tuple[FileWriter, int]:
            if head.filename is None:
                raise refusals.no_file_in_form("file")
            name = read_name(head.filename, "file", "The name of file")
            # The purpose may follow the file.
            is_known = _is_anthropics(request) or "purpose" in fields
            purpose = read(fields).purpose if is_known else None
            owner = FileOwner(policy.organization_id, policy.project_id)
            writer = FileWriter(owner, name, purpose or FilePurpose.USER_DATA, now=now, expires_at=latest)
            return writer, max_bytes(purpose)

        def finish(file: IncomingFile, fields: Mapping[str, str]) -> None:
            said, writer = read(fields), file.writer
            file.insist_on_size(max_bytes(said.purpose))
            writer.row.purpose = said.purpose
            writer.row.lines = file.line_ends + 1 if said.purpose == FilePurpose.BATCH else 0
            if said.lifetime is not None:
                writer.expires_at = min(latest, now + timedelta(seconds=said.lifetime))

        return _told(request, receive(request, policy, "file", max_bytes(None), begin, finish).row)

    return _authenticated(request, create)


def list_files(request: ClientRequest) -> ClientResponse:
    """List the project's files."""

    def list_them(policy: Policy) -> ClientResponse:
        rows = visible_files(policy)
        if _is_anthropics(request):
            return _answer(anthropic_page(rows, request.query_values))
        listing = read_listing(request.query_values, usual=_USUAL_PAGE)
        if listing.purpose is not None:
            if listing.purpose not in {*PURPOSES, FilePurpose.BATCH_OUTPUT}:
                raise InvalidRequest("purpose must be that of a file", param="purpose")
            rows = rows.filter(purpose=listing.purpose)
        found, has_more = page_of(rows, listing)
        return _answer(list_object([file_object(row) for row in found], has_more=has_more))

    return _authenticated(request, list_them)


def retrieve_file(request: ClientRequest) -> ClientResponse:
    """Tell of a file."""
    return _authenticated(request, lambda policy: _told(request, _find(policy, request)))


def delete_file(request: ClientRequest) -> ClientResponse:
    """Delete a file. A batch that has begun has its own copy of the lines."""

    def delete(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        delete_files(StoredFile.objects.filter(pk=row.pk))
        if _is_anthropics(request):
            return _answer(anthropic_deletion(row.pk))
        return _answer({"id": row.pk, "object": "file", "deleted": True})

    return _authenticated(request, delete)


def read_file_content(request: ClientRequest) -> ClientResponse:
    """Send the content of a file, a chunk at a time."""

    def read(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        disposition = f"attachment; filename*=UTF-8''{quote(name_of(row), safe='')}"
        return content_answer(row, "application/octet-stream", [("Content-Disposition", disposition)])

    return _authenticated(request, read)


def content_answer(row: StoredFile, content_type: str, headers: list[tuple[str, str]]) -> ClientResponse:
    """Return the answer that sends the content of a file. Raises the errors of reading the first chunk."""
    head = [("Content-Type", content_type), ("Content-Length", str(row.size)), *headers]
    chunks: Iterator[bytes] = chunks_of(row)
    first = next(chunks, b"")
    return ClientResponse(200, head, chain((first,), chunks))


def file_object(row: StoredFile) -> Record:
    """Return a file as OpenAI's API tells of it."""
    return {
        "id": row.pk,
        "object": "file",
        "bytes": row.size,
        "created_at": int(row.created_at.timestamp()),
        "expires_at": int(row.expires_at.timestamp()),
        "filename": name_of(row),
        "purpose": row.purpose,
        "status": "processed",
        "status_details": None,
    }


def _find(policy: Policy, request: ClientRequest) -> StoredFile:
    """Return the file that the path names. Raises NotFound."""
    return access_file(policy, request.parameters["file_id"])


def _is_anthropics(request: ClientRequest) -> bool:
    """Tell whether one of Anthropic's clients asks: both makers' ask at the same paths."""
    return request.header("anthropic-version") is not None


def _told(request: ClientRequest, row: StoredFile) -> ClientResponse:
    return _answer(anthropic_file(row) if _is_anthropics(request) else file_object(row))


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    dialect: ClientErrorWriter = ANTHROPIC if _is_anthropics(request) else OPENAI
    return answer_authenticated(request, "files", dialect, lambda token: work(find_current_policy(token)))


def _answer(body: Record) -> ClientResponse:
    return json_response(msgspec.json.encode(body))


_USUAL_ANTHROPIC_PAGE, _MAX_ANTHROPIC_PAGE = 20, 1_000
_UNKNOWN: Final = "application/octet-stream"


def anthropic_file(row: StoredFile) -> dict[str, Any]:
    """Return a file as Anthropic's API tells of it."""
    name = name_of(row)
    return {
        "id": row.pk,
        "type": "file",
        "filename": name,
        "mime_type": guess_type(name)[0] or _UNKNOWN,
        "size_bytes": row.size,
        "created_at": row.created_at.isoformat().replace("+00:00", "Z"),
        "expires_at": row.expires_at.isoformat().replace("+00:00", "Z"),
        "downloadable": True,
    }


def anthropic_deletion(file_id: str) -> dict[str, Any]:
    """Return what Anthropic's API says of a file that is deleted."""
    return {"id": file_id, "type": "file_deleted"}


def anthropic_page(rows: QuerySet[StoredFile], query: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a page of a list, the newest first. Raises InvalidRequest naming the parameter.

    Newer clients follow `next_page`, older ones the ids of the first and the last.
    """
    limit = read_limit(query, usual=_USUAL_ANTHROPIC_PAGE, most=_MAX_ANTHROPIC_PAGE)
    page, after, before = (last_of(query, name) for name in ("page", "after_id", "before_id"))
    if before is not None and (page is not None or after is not None):
        raise InvalidRequest("before_id cannot be given beside after_id or page", param="before_id")
    cursor = page if page is not None else after
    if cursor is not None:
        param = "page" if page is not None else "after_id"
        rows = rows.filter(database.read(partial(beyond, rows, cursor, param, older=True)))
    if before is not None:
        rows = rows.filter(database.read(partial(beyond, rows, before, "before_id", older=False)))
    # Those before one are the nearest to it.
    found, has_more = page_of(rows, Listing(limit, "asc" if before is not None else "desc", None))
    shown = [anthropic_file(row) for row in (reversed(found) if before is not None else found)]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    next_page = last if has_more and before is None else None
    return {"data": shown, "has_more": has_more, "first_id": first, "last_id": last, "next_page": next_page}


def create_upload(request: ClientRequest) -> ClientResponse:
    """Create an upload, whose parts are taken for an hour."""

    def create(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        return _answer(_upload_object(uploads.create(policy, read_new_upload(body))))

    return _answer_about_uploads(request, create)


def add_part(request: ClientRequest) -> ClientResponse:
    """Store a part that a form brings, as it arrives."""

    def add(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        upload = _find_upload(policy, request)
        uploads.insist_on_pending(upload)
        most = min(MAX_FILE_PART, max_bytes(None))

        def begin(head: PartHead, fields: Mapping[str, str]) -> tuple[FileWriter, int]:
            return FileWriter.of_row(uploads.new_part(upload), uploads.insert_part), most

        def finish(file: IncomingFile, fields: Mapping[str, str]) -> None:
            file.writer.row.lines = file.line_ends

        return _answer(_part_object(receive(request, policy, "data", most, begin, finish).row))

    return _answer_about_uploads(request, add)


def complete_upload(request: ClientRequest) -> ClientResponse:
    """Make a file of an upload's parts."""

    def complete(policy: Policy) -> ClientResponse:
        insist_on_keeping(policy)
        body, _ = read_body(request, policy.organization_id)
        row, file = uploads.complete(_find_upload(policy, request), read_completion(body))
        return _answer({**_upload_object(row), "file": file_object(file)})

    return _answer_about_uploads(request, complete)


def cancel_upload(request: ClientRequest) -> ClientResponse:
    """Cancel an upload; one that was cancelled stays so."""
    return _answer_about_uploads(
        request, lambda policy: _answer(_upload_object(uploads.cancel(_find_upload(policy, request))))
    )


def _upload_object(row: Upload) -> Record:
    return {
        "id": row.pk,
        "object": "upload",
        "bytes": row.size,
        "created_at": int(row.created_at.timestamp()),
        "expires_at": int(row.expires_at.timestamp()),
        "filename": name_in(row),
        "purpose": row.purpose,
        "status": uploads.status_of(row),
        "file": None,
    }


def _part_object(row: StoredFile) -> Record:
    created_at = int(row.created_at.timestamp())
    return {"id": row.pk, "object": "upload.part", "created_at": created_at, "upload_id": row.upload_id}


def _find_upload(policy: Policy, request: ClientRequest) -> Upload:
    """Return the upload that the path names. Raises NotFound."""
    return uploads.access_upload(policy, request.parameters["upload_id"])


def _answer_about_uploads(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    return answer_authenticated(request, "uploads", OPENAI, lambda token: work(find_current_policy(token)))


# Bytes of a field beside the file, of which a name's length are read.
_MAX_FIELD: Final = 64 * 1024
_MAX_TEXT: Final = 255


class IncomingFile:
    """A file that arrives: how much of it, and how many line ends are in that."""

    def __init__(self, writer: FileWriter, field: str, most: int, left: Callable[[], int]) -> None:
        """Take the writer of a new file, its field, the most bytes that it may have, and how many may still come."""
        self.writer = writer
        self.size = self.line_ends = 0
        self._field = field
        self._most = most
        self._left = left
        self._begun = False

    def add(self, piece: bytes) -> None:
        """Take in what came. Raises BodyTooLarge, InvalidRequest for want of room, DatabaseError."""
        self.size += len(piece)
        self.line_ends += piece.count(b"\n")
        self.insist_on_size(self._most)
        if self.size >= CHUNK and not self._begun:
            # Only a small file's size is known before it is written.
            self._begin(min(self.size + self._left(), self._most))
        self.writer.add(piece)

    def insist_on_size(self, most: int) -> None:
        """Raise BodyTooLarge when it is larger than that."""
        if self.size > most:
            raise refusals.too_large_file(most, self._field)

    def end(self) -> None:
        """Write the rest of it, and let it be seen. Raises InvalidRequest for want of room, DatabaseError."""
        if not self._begun:
            self._begin(self.size)
        self.writer.close()

    def abandon(self) -> None:
        """Remove what there is of it."""
        if self._begun:
            self.writer.abandon()

    def _begin(self, size: int) -> None:
        # If the answer is lost, the row may have been written.
        self._begun = True
        self.writer.begin(size)


class Begin(Protocol):
    """A function that makes the writer of a form's file."""

    def __call__(self, head: PartHead, fields: Mapping[str, str]) -> tuple[FileWriter, int]:
        """Return a writer and its maximum of bytes, from the fields that came before the file. Raises ApiError."""


def receive(
    request: ClientRequest,
    policy: Policy,
    field: str,
    most: int,
    begin: Begin,
    finish: Callable[[IncomingFile, Mapping[str, str]], None],
) -> FileWriter:
    """Read the form that a request brings, and store its one file, which is in a field of that name.

    `most` is how many bytes the file may have at all. `finish` looks at all of the form before the file is seen. When
    anything fails nothing is stored. Raises ApiError naming the field, DatabaseError.
    """
    request.accepted_content_types = (MULTIPART,)
    if (request.content_length or 0) > most + FORM_ROOM:
        raise refusals.too_large_file(most, field)
    body = IncomingBody(request, policy.organization_id, most + FORM_ROOM)
    fields: dict[str, str] = {}
    seen: set[str] = set()
    file: IncomingFile | None = None
    try:
        for head, data in parts_of(body, request.content_type_header):
            if head.name in seen:
                raise InvalidRequest(f"{head.name} is given twice", param=head.name)
            seen.add(head.name)
            if head.name == field:
                writer, limit = begin(head, fields)
                file = IncomingFile(writer, field, limit, lambda: body.left)
                for piece in data:
                    file.add(piece)
            elif (text := _read_text(head, data)) is not None:
                fields[head.name] = text
        if file is None:
            raise refusals.no_file_in_form(field)
        if not file.size:
            raise InvalidRequest(f"{field} is empty", param=field)
        finish(file, fields)
        file.end()
    except BaseException:
        if file is not None:
            file.abandon()
        raise
    return file.writer


def _read_text(head: PartHead, data: Iterator[bytes]) -> str | None:
    """Return the beginning of a field's text, None for a file, which no other field may be. Raises InvalidRequest."""
    text, size = b"", 0
    for piece in data:
        size += len(piece)
        if size > _MAX_FIELD:
            raise InvalidRequest(f"{head.name} is longer than {_MAX_FIELD} bytes", param=head.name)
        text = (text + piece)[:_MAX_TEXT]
    return text.decode("utf-8", "replace") if head.filename is None else None
