"""Streaming export of rows as CSV or JSON lines, page by page, so that a long answer needs little memory.

No database connection is held while a slow client reads.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from apps.kernel.postgres import database, replica
from apps.logs.access import LogScope
from apps.logs.query import LogFilters, LogRow
from apps.logs.search import find_page

ExportRecord = dict[str, Any]

# Rows of a page: few at first, because each may hold megabytes; later as many as fit into the bytes.
FIRST_PAGE, LARGEST_PAGE, PAGE_BYTES = 16, 256, 1024 * 1024
# First characters of spreadsheet formulas, full-width forms included; numbers are exempt.
_FORMULA = ("=", "+", "-", "@", *"\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ENCODER = msgspec.json.Encoder(uuid_format="canonical")


class ExportFormat(NamedTuple):
    """A file format: its content type, its header, and how records are written."""

    content_type: str
    begin: Callable[[Sequence[str]], bytes]
    write: Callable[[Iterable[ExportRecord]], bytes]


def write_file(form: ExportFormat, names: Sequence[str], pages: Iterable[Sequence[ExportRecord]]) -> Iterator[bytes]:
    """Yield the file of the records, whose fields are `names`, page by page."""
    yield form.begin(names)
    for page in pages:
        yield form.write(page)


def find_pages(scope: LogScope, filters: LogFilters, *, ascending: bool) -> Iterator[list[LogRow]]:
    """Yield the existing rows in order, page by page."""
    # Without an end, rows that arrive meanwhile could continue the export forever.
    now = datetime.now(UTC)
    filters = replace(filters, end=min(now, filters.end or now))
    after, count = None, FIRST_PAGE
    while True:
        asked = partial(find_page, scope, filters, count=count, after=after, ascending=ascending)
        rows = replica.read(partial(_find, asked))
        # The client may read a page slowly.
        database.release_connection()
        if rows:
            after = rows[-1]["id"]
            yield rows
        if len(rows) < count:
            return
        count = _next_count(rows)


def _find(asked: Callable[..., list[LogRow]], using: str) -> list[LogRow]:
    return asked(using=using)


def _next_count(rows: Sequence[LogRow]) -> int:
    """Return the size of the next page, derived from these rows: at most twice as many."""
    size = sum(len(value) for row in rows for value in row.values() if isinstance(value, str))
    return max(1, min(LARGEST_PAGE, 2 * len(rows), PAGE_BYTES * len(rows) // max(size, 1)))


def _lines(records: Iterable[ExportRecord]) -> bytes:
    return b"".join(_ENCODER.encode(record) + b"\n" for record in records)


def _table(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    """Return a value as a cell: null is empty, text is never a formula, structures are JSON."""
    match value:
        case None:
            return ""
        case str():
            text = value
        case msgspec.Raw():
            text = bytes(value).decode()
        case _:
            # Ids and times are strings in JSON.
            text = _ENCODER.encode(value).decode().strip('"')
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


FORMATS = {
    "csv": ExportFormat(
        "text/csv; charset=utf-8",
        begin=lambda names: _table([names]),
        write=lambda records: _table([_cell(value) for value in record.values()] for record in records),
    ),
    "jsonl": ExportFormat("application/jsonl", begin=lambda names: b"", write=_lines),
}
