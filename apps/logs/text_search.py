"""Full text search of logged content: the newest requests are read, closed days have an index.

Only rows whose content is kept (retention level `retain`) have text. A partition gets its index after its day has
ended, so that writing a row costs nothing more. A search has a time limit; it returns how far back it came.
"""

from __future__ import annotations

import re
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.models import QuerySet

from apps.kernel.ids import time_of
from apps.kernel.postgres.replica import PRIMARY
from apps.logs import partitions
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import MAX_TEXT, LogFilters, LogRow
from apps.logs.search import conditions_of, rows_by_ids, rows_of_organization
from apps.organizations.models import RetentionLevel

log = structlog.get_logger(__name__)

# Seconds of one search, and rows read by its first statement and at most by a later one.
TIME_LIMIT: Final = 0.25
_FIRST_CHUNK, _MAX_CHUNK = 200, 800
# Characters of the answer and of the end of the prompt that are searched. With them a row's words stay within the
# megabyte that PostgreSQL takes as a text's words.
SEARCHED_ANSWER, SEARCHED_PROMPT = 50_000, 60_000
# The words of a row. The first one is its organization, so that a search of one reads no words of others. A line break
# in JSON is a backslash and a letter, which would become part of the next word.
_WORDS: Final = (
    "to_tsvector('simple'::regconfig, 'o' || replace(organization_id::text, '-', '') || ' ' || "
    f"left(coalesce(content, ''), {SEARCHED_ANSWER}) || ' ' || "
    f"replace(right(coalesce(messages::text, ''), {SEARCHED_PROMPT}), '\\n', ' '))"
)
_MATCH: Final = f"{_WORDS} @@ (to_tsquery('simple', %s) && websearch_to_tsquery('simple', %s))"
# A row that matches has every word that is not one of several in its text. To look for them takes a tenth of the time
# that its words take.
_HAS_WORDS: Final = "lower(coalesce(content, '') || ' ' || coalesce(messages::text, '')) LIKE ALL (%s)"
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
# A word whose small letters depend on where it stands, or that PostgreSQL writes with escapes.
_UNLIKE: Final = re.compile(r"[σς'\\]")
_KEPT: Final = f"retention_level = '{RetentionLevel.RETAIN}'"
_INDEX_ENDING: Final = "_text"
# The partitions with an index that is complete.
_INDEXED: Final = """
    SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    JOIN pg_index ON pg_index.indrelid = child.oid JOIN pg_class own ON own.oid = pg_index.indexrelid
    WHERE inhparent = 'request_log'::regclass AND indisvalid AND own.relname = child.relname || %s
"""


@dataclass(frozen=True, slots=True)
class TextPage:
    """The found rows, newest first.

    `next_after` is the request after which the next page begins, None after the last page; `searched_since` is set if
    the time limit ended the search: all newer requests were searched.
    """

    rows: list[LogRow]
    next_after: UUID | None
    searched_since: datetime | None = None


def index_closed_days(now: datetime, seconds: float) -> list[date]:
    """Create the missing indexes of days that have ended and have content, newest first; return the days.

    After `seconds` no further one is begun. Must run outside of a transaction. Writers do not wait. A day that fails is
    left to the next run.
    """
    done = []
    ends_at = clock.monotonic() + seconds
    today = now.astimezone(UTC).date()
    indexed = _indexed_days(PRIMARY)
    for day in sorted(partitions.existing(), reverse=True):
        if day >= today or day in indexed:
            continue
        if clock.monotonic() > ends_at:
            break
        try:
            with partitions.unless_gone():
                if _has_content(day):
                    _create_index(day)
                    done.append(day)
        except DatabaseError as error:
            log.warning("text_search.not_indexed", day=str(day), error=type(error).__name__)
    return done


def _has_content(day: date) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {partitions.name_of(day)} WHERE {_KEPT})")  # noqa: S608 - ours
        return bool(cursor.fetchone()[0])


def _create_index(day: date) -> None:
    partition = partitions.name_of(day)
    name = f"{partition}{_INDEX_ENDING}"
    with connection.cursor() as cursor:
        # One that an interrupted run left is invalid.
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        cursor.execute(f"CREATE INDEX CONCURRENTLY {name} ON {partition} USING gin (({_WORDS})) WHERE {_KEPT}")


def _indexed_days(using: str) -> set[date]:
    with connections[using].cursor() as cursor:
        cursor.execute(_INDEXED, [_INDEX_ENDING])
        return {partitions.day_of(name) for (name,) in cursor.fetchall()}


def has_words(text: str) -> bool:
    """Return whether a search text has a word to search for."""
    if "\0" in text:
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT querytree(websearch_to_tsquery('simple', %s))", [text])
        # The part that an index can look up: without any positive word, everything matches.
        return cursor.fetchone()[0] not in {"", "T"}


def find_text(
    scope: LogScope,
    filters: LogFilters,
    text: str,
    *,
    after: UUID | None,
    count: int,
    using: str = PRIMARY,
    seconds: float = TIME_LIMIT,
) -> TextPage:
    """Return requests of one organization whose kept content has all words of `text`, newest first, after `after`.

    `text` is written as for web searches: words, "a phrase", `or`, `-word`; it has a word (`has_words`). Days in the
    log archive are not searched.
    """
    [(organization_id, low)] = scope.since.items()
    high = datetime.now(UTC) + timedelta(days=1)
    low, high = max(low, filters.start or low), min(high, filters.end or high)
    if after is not None:
        high = min(high, time_of(after))
    search = _Search(scope, filters, organization_id, text[:MAX_TEXT], using, clock.monotonic() + seconds)
    search.run(low, high, after, count)
    found = search.found[:count]
    rows = rows_by_ids(scope, found, using)
    if len(search.found) >= count:
        return TextPage(rows, found[-1] if found else None)
    if search.stopped_at is not None:
        return TextPage(rows, search.stopped_at, time_of(search.stopped_at))
    return TextPage(rows, None)


def _patterns_of(text: str, using: str) -> list[str]:
    """Return patterns for LIKE that the small letters of every match have; none where a part of a search may match."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT querytree(websearch_to_tsquery('simple', %s))", [text])
        tree = str(cursor.fetchone()[0])
    if "|" in _QUOTED.sub("", tree):
        return []
    words = [word for word in _QUOTED.findall(tree) if not _UNLIKE.search(word)]
    return [f"%{word.replace('%', '_')}%" for word in words]


class _Search:
    """One search: ids of matching rows, newest first, and the row at which the time limit ended it."""

    def __init__(
        self, scope: LogScope, filters: LogFilters, organization_id: UUID, text: str, using: str, ends_at: float
    ) -> None:
        self._using, self._ends_at = using, ends_at
        self._organization_id = organization_id
        self._wanted = conditions_of(filters)
        self._rows = rows_of_organization(scope, organization_id, using).filter(retention_level=RetentionLevel.RETAIN)
        # The organization's own word is hexadecimal, and needs no quoting.
        self._query = [f"o{organization_id.hex}", text]
        self._patterns = _patterns_of(text, using)
        self.found: list[UUID] = []
        self.stopped_at: UUID | None = None
        # Whether any row has been read.
        self._has_read = False

    def run(self, low: datetime, high: datetime, after: UUID | None, count: int) -> None:
        """Search from `high` back to `low`, until `count` rows are found or the time is over."""
        indexed = _indexed_days(self._using)
        for day in sorted(partitions.existing(self._using), reverse=True):
            begins = datetime.combine(day, time.min, UTC)
            ends = begins + timedelta(days=1) - timedelta(microseconds=1)
            if begins > high or ends < low:
                continue
            if day not in indexed and not self._has_content(day):
                continue
            begins, ends = max(begins, low), min(ends, high)
            # Frequent words fill a page from the newest rows, without the index, which would find all of them first.
            # This also takes every search forward, however little time it has.
            chunks = None if day not in indexed else 0 if self._has_read else 1
            after, is_through = self._read_rows(begins, ends, after, count, chunks)
            if not is_through and day in indexed and len(self.found) < count:
                is_through = self._read_index(day, begins, ends, after, count)
            if len(self.found) >= count:
                return
            if not is_through:
                self.stopped_at = after
                return

    def _has_content(self, day: date) -> bool:
        """Return whether a day has content of the organization.

        Without this, a day without any would be read to its end for the first row. The order is that of an index.
        """
        with connections[self._using].cursor() as cursor:
            cursor.execute(
                f"""
                SELECT organization_id FROM {partitions.name_of(day)}
                WHERE retention_level <> '{RetentionLevel.NONE}' AND (organization_id, retention_level) >= (%s, %s)
                ORDER BY organization_id, retention_level LIMIT 1
                """,  # noqa: S608 - names are ours
                [self._organization_id, RetentionLevel.RETAIN.value],
            )
            return bool(cursor.fetchone() == (self._organization_id,))

    def _read_rows(
        self, begins: datetime, ends: datetime, after: UUID | None, count: int, max_chunks: int | None
    ) -> tuple[UUID | None, bool]:
        """Read rows of a day, newest first; return the last one that was read, and whether it was the day's last."""
        chunks, size = 0, _FIRST_CHUNK
        while max_chunks is None or chunks < max_chunks:
            if self._has_read and clock.monotonic() >= self._ends_at:
                return after, False
            rows = self._rows.filter(created_at__gte=begins, created_at__lte=ends)
            rows = rows if after is None else rows.filter(id__lt=after)
            newest = rows.order_by("-created_at", "-id").values_list("id", flat=True)[:size]
            ids = [UUID(str(one)) for one in newest]
            if ids:
                self.found += self._matching(begins.date(), ids)
                after, self._has_read = ids[-1], True
            if len(ids) < size:
                return after, True
            if len(self.found) >= count:
                return after, False
            chunks, size = chunks + 1, min(size * 2, _MAX_CHUNK)
        return after, False

    def _matching(self, day: date, ids: Sequence[UUID]) -> list[UUID]:
        """Return those of some rows of a day that match, in their order."""
        text, values = self._statement(self._rows.filter(self._wanted))
        with connections[self._using].cursor() as cursor:
            # The conditions of the filters are Django's, on what has the table's name here: the rows that match. So
            # PostgreSQL computes the words of no other rows.
            cursor.execute(
                f"""
                WITH read AS MATERIALIZED (
                    SELECT row.* FROM unnest(%s::timestamptz[], %s::uuid[]) AS wanted (created_at, id)
                    JOIN {partitions.name_of(day)} AS row USING (created_at, id)
                ), request_log AS MATERIALIZED (SELECT * FROM read WHERE {_HAS_WORDS} AND {_MATCH})
                {text}
                """,  # noqa: S608 - Django's own text, and ours
                [[time_of(one) for one in ids], list(ids), self._patterns, *self._query, *values],
            )
            return [UUID(str(one)) for (one,) in cursor.fetchall()]

    def _read_index(self, day: date, begins: datetime, ends: datetime, after: UUID | None, count: int) -> bool:
        """Find further rows of a day by its index; return whether there was time for it."""
        milliseconds = round((self._ends_at - clock.monotonic()) * 1000)
        if milliseconds <= 0:
            return False
        rows = self._rows.filter(self._wanted, created_at__gte=begins, created_at__lte=ends)
        rows = rows if after is None else rows.filter(id__lt=after)
        text, values = self._statement(rows, count - len(self.found))
        try:
            with transaction.atomic(using=self._using), connections[self._using].cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")
                # As above. The conditions of the filters have other indexes, which must not be used instead.
                cursor.execute(
                    f"""
                    WITH request_log AS MATERIALIZED (
                        SELECT * FROM {partitions.name_of(day)} WHERE {_KEPT} AND {_MATCH}
                    )
                    {text}
                    """,  # noqa: S608 - Django's own text, and ours
                    [*self._query, *values],
                )
                self.found += [UUID(str(one)) for (one,) in cursor.fetchall()]
        except OperationalError:
            return False
        return True

    def _statement(self, rows: QuerySet[RequestLog], count: int | None = None) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL of the ids of rows, newest first, with its values."""
        text, values = rows.order_by("-created_at", "-id").values("id")[:count].query.sql_with_params()
        return text, tuple(values)
