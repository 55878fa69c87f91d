"""Lines of a batch's input: one JSON object a line, validated by field with the number of its line.

An input is read in pieces, bounded by lines and bytes, each from where the last one ended. A piece has the requests of
its lines, their errors, and the place where the next piece begins.

Source: OpenAI's Batch API (`custom_id`, `method`, `url`, `body`; codes of errors as its clients report them). The
endpoint validates the body when it answers the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import msgspec
from django.conf import settings

from apps.batches.models import Batch, BatchLine, StoredFile
from apps.batches.stored_files import chunks_of
from apps.gateway.dialects.reading.fields import read_json
from apps.kernel.errors import InvalidRequest
from apps.kernel.secrets.encryption import UnreadableSecretError, keyed_digest

# Lines of a batch, characters of a custom id, and reported errors of a file.
MAX_LINES: Final = 50_000
MAX_CUSTOM_ID: Final = 512
MAX_ERRORS: Final = 100


class LineRequest(msgspec.Struct, frozen=True):
    """The request of a line; its endpoint gets `body`."""

    custom_id: str
    body: msgspec.Raw


class LineError(msgspec.Struct, frozen=True):
    """An error in an input file; `line` counts from 1, None for the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class WrongLine(ValueError):
    """A line that cannot be asked; `error` says why."""

    def __init__(self, error: LineError) -> None:
        super().__init__(error.message)
        self.error = error


class _Members(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


_DECODER: Final = msgspec.json.Decoder(_Members)


class LineReader:
    """Reads lines of one input, each of which is for the same endpoint, given as its path."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._custom_ids: set[str] = set()

    def read(self, text: bytes, number: int) -> LineRequest:
        """Return what a line asks. Raises WrongLine."""
        try:
            # Bounded as a body of its own would be: it becomes one.
            given = read_json(text)
        except InvalidRequest as error:
            said = error.message.replace("The request body", "This line")
            raise WrongLine(LineError("invalid_json_line", said, line=number)) from None
        members = _DECODER.decode(text)
        custom_id = self._read_custom_id(members.custom_id, number)
        if members.method != "POST":
            raise _wrong(members.method, "method", "must be POST", "invalid_method", number)
        if members.url != self._endpoint:
            said = f"must be the batch's endpoint, {self._endpoint}"
            raise _wrong(members.url, "url", said, "url_mismatch", number)
        body = given.get("body")
        if not isinstance(body, dict) or not body:
            raise _wrong(body, "body", "must be an object", "invalid_body", number)
        if (flag := find_wrong_flag(body)) is not None:
            raise _wrong(True, f"body.{flag}", "must be false in a batch", "invalid_body", number)
        return LineRequest(custom_id, members.body)

    def _read_custom_id(self, value: Any, number: int) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_CUSTOM_ID:
            said = f"must be a string of 1 to {MAX_CUSTOM_ID} characters"
            raise _wrong(value, "custom_id", said, "invalid_custom_id", number)
        if value in self._custom_ids:
            raise WrongLine(self.error_of_known_id(number))
        self._custom_ids.add(value)
        return value

    @staticmethod
    def error_of_known_id(number: int) -> LineError:
        """Return the error of a line whose custom id an earlier line has."""
        return LineError("duplicate_custom_id", "custom_id is that of an earlier line", "custom_id", number)


def find_wrong_flag(body: dict[str, Any]) -> str | None:
    """Return the name of a field that no batch can honor: no client follows the answer."""
    return next((name for name in ("stream", "background") if body.get(name)), None)


def lines_of(chunks: Iterable[bytes], most: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a content that comes in chunks, without their ends; the last may have none.

    One that is longer than `most` bytes is cut a chunk or so behind that, and nothing follows it.
    """
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if most is not None and size > most:
            yield b"".join(rest)
            return
        if others:
            size = len(others[-1])
        for line in others:
            yield b"".join(rest)
            rest = [line]
    if last := b"".join(rest):
        yield last


def _wrong(value: Any, param: str, said: str, code: str, number: int) -> WrongLine:
    if value is None:
        return WrongLine(LineError("missing_required_parameter", f"{param} is required", param, number))
    return WrongLine(LineError(code, f"{param} {said}", param, number))


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
