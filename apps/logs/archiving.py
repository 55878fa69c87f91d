"""Archiving: closed days move from PostgreSQL to the log archive, and expire there.

A day is first copied, then dropped if none of its rows has changed meanwhile: at every moment it is in at least one of
the two stores, and a search of both returns each row once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import JSONField

from apps.kernel.postgres.advisory_lock import AdvisoryLock, hold_lock
from apps.logs import partitions, retention
from apps.logs.archive import LogArchive, archived_before, find_archive
from apps.logs.models import RequestLog
from apps.organizations.plans import PLANS

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
