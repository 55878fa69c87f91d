"""Incoming files: a form is read as it arrives, and its file is written to the store a chunk at a time.

Until all of it has arrived, the file takes room and is invisible. An incomplete file is removed at once or, if the
process ended, by the next purge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from apps.batches import refusals
from apps.batches.stored_files import CHUNK, FileWriter
from apps.gateway.access.policy import Policy
from apps.gateway.admission.byte_budget import IncomingBody
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.client.multipart import MULTIPART, PartHead, parts_of
from apps.kernel.errors import InvalidRequest
from apps.kernel.upload_bounds import FORM_ROOM

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
