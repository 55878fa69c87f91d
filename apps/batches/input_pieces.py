"""Pieces of a batch's input: read from where the last piece ended, bounded by lines and bytes.

A piece says what its lines ask, what is wrong with them, and where the next piece begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.conf import settings

from apps.batches.line_format import (
    MAX_LINES,
    LineError,
    LineReader,
    LineRequest,
    WrongLine,
    lines_of,
)
from apps.batches.models import Batch, BatchLine, StoredFile
from apps.batches.stored_files import chunks_of
from apps.kernel.secrets.encryption import UnreadableSecretError, keyed_digest

# Lines and bytes of a piece. One line may have more bytes.
MAX_PIECE_LINES: Final = 500
MAX_PIECE_BYTES: Final = 4 * 1024 * 1024
# Bytes of a line around its body, which is bounded as that of a request.
_LINE_ROOM: Final = 64 * 1024
# Programs of Windows begin a text in UTF-8 with it.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class WrongInput(ValueError):
    """An input that makes no batch: what is wrong with it as a whole."""

    def __init__(self, error: LineError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class PlacedRequest:
    """The request of a line; `position` counts the lines that are not blank from 0, `number` all lines from 1."""

    position: int
    number: int
    request: LineRequest
    custom_id_digest: UUID


@dataclass(slots=True)
class InputPiece:
    """Lines of an input, in order; `is_last` tells that nothing follows. The counts are from the input's beginning."""

    bytes_read: int
    lines_read: int
    lines_prepared: int
    requests: list[PlacedRequest] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)
    is_last: bool = False


def read_piece(row: Batch) -> InputPiece:
    """Return the piece of a batch's input that follows what the row says was read. Raises WrongInput, DatabaseError."""
    file = StoredFile.objects.filter(pk=row.input_file_id, project_id=row.project_id, is_complete=True).first()
    if file is None:
        raise WrongInput(LineError("invalid_file", "The input file is no longer there", "input_file_id"))
    try:
        piece = _read(row, file)
    except (UnreadableSecretError, KeyError):
        raise WrongInput(LineError("invalid_file", "The input file cannot be read", "input_file_id")) from None
    if piece.is_last and not piece.lines_prepared:
        raise WrongInput(LineError("empty_file", "The input file has no lines", "input_file_id"))
    _refuse_known_ids(row, piece)
    return piece


def _read(row: Batch, file: StoredFile) -> InputPiece:
    reader, piece = LineReader(row.endpoint), InputPiece(row.bytes_read, row.lines_read, row.lines_prepared)
    if piece.bytes_read >= file.size:
        piece.is_last = True
        return piece
    most = settings.BODY_LIMIT + _LINE_ROOM
    for line in lines_of(chunks_of(file, piece.bytes_read), most):
        if piece.lines_read - row.lines_read >= MAX_PIECE_LINES or piece.bytes_read - row.bytes_read >= MAX_PIECE_BYTES:
            return piece
        if len(line) > most:
            # A line is in memory as a whole. Where this one ends is not known, nor what follows it.
            said = f"This line is larger than {most} bytes"
            raise WrongInput(LineError("invalid_json_line", said, line=piece.lines_read + 1))
        text = line.removeprefix(_BYTE_ORDER_MARK) if not piece.bytes_read else line
        piece.bytes_read += len(line) + 1
        piece.lines_read += 1
        if not text.strip():
            continue
        if piece.lines_prepared >= MAX_LINES:
            said = f"A batch may have {MAX_LINES} lines"
            raise WrongInput(LineError("too_many_tasks", said, line=piece.lines_read))
        piece.lines_prepared += 1
        try:
            request = reader.read(text, piece.lines_read)
        except WrongLine as wrong:
            piece.errors.append(wrong.error)
        else:
            digest = UUID(hex=keyed_digest(f"custom id\n{row.pk}\n{request.custom_id}".encode())[:32])
            piece.requests.append(PlacedRequest(piece.lines_prepared - 1, piece.lines_read, request, digest))
    piece.is_last = True
    return piece


def _refuse_known_ids(row: Batch, piece: InputPiece) -> None:
    """Turn lines with a custom id of an earlier piece into errors."""
    digests = [placed.custom_id_digest for placed in piece.requests]
    lines = BatchLine.objects.filter(batch=row, custom_id_digest__in=digests)
    if known := set(lines.values_list("custom_id_digest", flat=True)):
        twice = [placed for placed in piece.requests if placed.custom_id_digest in known]
        piece.requests = [placed for placed in piece.requests if placed.custom_id_digest not in known]
        piece.errors += [LineReader.error_of_known_id(placed.number) for placed in twice]
        piece.errors.sort(key=lambda error: error.line or 0)
