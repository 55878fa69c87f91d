"""The log archive (cold storage): interface of its stores; closed days move there from PostgreSQL, and expire there.

A day is first copied, then dropped if none of its rows has changed meanwhile: at every moment it is in at least one of
the two stores, and a search of both returns each row once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import JSONField

from apps.kernel.postgres.advisory_lock import AdvisoryLock, hold_lock
from apps.logs import partitions, retention
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import LogFilters, LogRow
from apps.organizations.plans import PLANS

# Days that stay in PostgreSQL, today included, because late updates must find their rows there.
KEPT_DAYS = 7


class LogArchive(Protocol):
    """A store of days that have left PostgreSQL. Rows are identified by id: adding one twice stores it once."""

    def find_page(
        self,
        scope: LogScope,
        filters: LogFilters,
        *,
        low: datetime,
        high: datetime,
        after: UUID | None,
        count: int,
        ascending: bool,
    ) -> list[LogRow]:
        """Return at most `count` rows from `low` to `high`, both included, as `search.find_page` does."""

    def find_row(self, scope: LogScope, identifier: UUID) -> LogRow | None:
        """Return a row by its id, or None."""

    def find_media_data(self, scope: LogScope, identifier: UUID) -> str | None:
        """Return the encrypted images and audio of a row, None without any."""

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows in the order of the table's columns; existing ones are replaced."""

    def oldest(self) -> dict[UUID, datetime]:
        """Return the time of the oldest row of each organization with rows."""

    def levels(self) -> set[tuple[UUID, str]]:
        """Return organizations and retention levels of rows above the lowest level."""

    def delete(self, organizations: Collection[UUID], before: datetime | None = None) -> None:
        """Delete organizations' rows before a moment, or all."""

    def drop_before(self, day: date) -> None:
        """Drop earlier days entirely."""

    def blank(self, organization_id: UUID, level: str, allowed: str, columns: Sequence[str]) -> None:
        """Clear columns of an organization's rows at a level, and set their level to `allowed`."""


def find_archive() -> LogArchive | None:
    """Return the configured archive, None if PostgreSQL has all days."""
    return _clickhouse(settings.CLICKHOUSE_URL) if settings.CLICKHOUSE_URL else None


def archived_before(now: datetime) -> datetime:
    """Return the moment since which every row is in PostgreSQL; earlier ones may have been archived."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=KEPT_DAYS - 1)


def merge_rows(rows: Sequence[LogRow], moved: Sequence[LogRow], *, count: int, ascending: bool) -> list[LogRow]:
    """Return the first `count` rows of both in order; for a row in both, the one from `rows`."""
    found: Mapping[UUID, LogRow] = {row["id"]: row for row in (*moved, *rows)}
    return sorted(found.values(), key=lambda row: (row["created_at"], row["id"]), reverse=not ascending)[:count]


@cache
def _clickhouse(url: str) -> LogArchive:
    # Imported here, because the library is an optional extra.
    from apps.logs.clickhouse import ClickHouse

    return ClickHouse(url)


# Rows added by one statement.
BATCH = 5_000
_FIELDS = list(RequestLog._meta.concrete_fields)
_SELECTED = ", ".join(f"{field.name}::text" if isinstance(field, JSONField) else field.name for field in _FIELDS)
_PLACES = [[field.name for field in _FIELDS].index(name) for name in ("created_at", "id")]


def archive_closed_days(now: datetime) -> list[date]:
    """Move closed days; return the ones that have left PostgreSQL. An interrupted run is repeated."""
    log_archive = find_archive()
    if log_archive is None:
        return []
    # The lock keeps other processes from changing older days, so that removed rows do not come back.
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        closed = [day for day in partitions.existing() if day < archived_before(now).date()]
        return [day for day in closed if _archive_day(log_archive, day)]


def expire(now: datetime) -> None:
    """Delete expired rows there; days that have expired for all organizations are dropped."""
    log_archive = find_archive()
    if log_archive is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        oldest = log_archive.oldest()
        longest = now - timedelta(days=max(limits.log_days for limits in PLANS.values()))
        since = dict.fromkeys(oldest, longest) | retention.visible_to(oldest, now)
        if not since:
            return
        log_archive.drop_before(min(since.values()).date())
        past = defaultdict(set)
        for organization_id, moment in since.items():
            if oldest[organization_id] < moment:
                past[moment].add(organization_id)
        for moment, organizations in past.items():
            log_archive.delete(organizations, moment)


def blank() -> None:
    """Clear columns that exceed the organizations' current retention levels there."""
    log_archive = find_archive()
    if log_archive is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        for organization_id, level, allowed in retention.find_excess_levels(log_archive.levels()):
            log_archive.blank(organization_id, level, allowed, retention.FORBIDDEN[allowed])


def erase(organization_id: UUID) -> None:
    """Delete all rows of an organization there. Delete them in PostgreSQL first: they could be moved."""
    log_archive = find_archive()
    if log_archive is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        log_archive.delete([organization_id])


def _archive_day(log_archive: LogArchive, day: date) -> bool:
    # Taken before the first row is read, so that later changes are noticed.
    marks = _fingerprint(day)
    for rows in _pages(day):
        log_archive.add(rows)
    return partitions.drop(day, lambda: _fingerprint(day) == marks)


def _fingerprint(day: date) -> tuple[Any, ...]:
    """Return a value that changes if a row of the day is added, changed or removed: from ids and versions."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*), sum(hashtextextended(id::text || xmin::text, 0)::numeric) FROM {partitions.name_of(day)}"  # noqa: S608 - the name is made from a date
        )
        return tuple(cursor.fetchone())


def _pages(day: date) -> Iterator[list[tuple[Any, ...]]]:
    """Yield a day's rows by column, in order; nothing is locked between pages."""
    after: tuple[Any, ...] = (datetime.min.replace(tzinfo=UTC), UUID(int=0))
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {_SELECTED} FROM {partitions.name_of(day)} "  # noqa: S608 - names are ours
                "WHERE (created_at, id) > (%s, %s) ORDER BY created_at, id LIMIT %s",
                [*after, BATCH],
            )
            rows = cursor.fetchall()
        if rows:
            yield rows
        if len(rows) < BATCH:
            return
        after = tuple(rows[-1][place] for place in _PLACES)
