"""Closed days of the log, moved from PostgreSQL to the store of older days; what becomes of them there.

A day is first added whole, then dropped if not a row of it has changed meanwhile: at every moment it is in at least one
of the two, and who asks both sees each row once. Must never know which store it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import JSONField

from apps.kernel.advisory_lock import AdvisoryLock, hold_lock
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
    """Move the days that are closed; return those that have left PostgreSQL. A run that is cut short is repeated."""
    store = find_archive()
    if store is None:
        return []
    # What is removed must not come back: nobody else changes the older days meanwhile.
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        closed = [day for day in partitions.existing() if day < archived_before(now).date()]
        return [day for day in closed if _archive_day(store, day)]


def expire(now: datetime) -> None:
    """Delete what is past its retention there; days that are past for everybody whole."""
    store = find_archive()
    if store is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        oldest = store.oldest()
        longest = now - timedelta(days=max(limits.log_days for limits in PLANS.values()))
        since = dict.fromkeys(oldest, longest) | retention.visible_to(oldest, now)
        if not since:
            return
        store.drop_before(min(since.values()).date())
        past = defaultdict(set)
        for organization_id, moment in since.items():
            if oldest[organization_id] < moment:
                past[moment].add(organization_id)
        for moment, organizations in past.items():
            store.delete(organizations, moment)


def blank() -> None:
    """Blank what rows hold there beyond the level that their organization has by now."""
    store = find_archive()
    if store is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        for organization_id, level, allowed in retention.find_excess_levels(store.levels()):
            store.blank(organization_id, level, allowed, retention.FORBIDDEN[allowed])


def erase(organization_id: UUID) -> None:
    """Delete every row of an organization there. What is in PostgreSQL must be gone before: it could be moved."""
    store = find_archive()
    if store is None:
        return
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        store.delete([organization_id])


def _archive_day(store: LogArchive, day: date) -> bool:
    # Before the first row is read: whatever changes from here on is seen.
    marks = _fingerprint(day)
    for rows in _pages(day):
        store.add(rows)
    return partitions.drop(day, lambda: _fingerprint(day) == marks)


def _fingerprint(day: date) -> tuple[Any, ...]:
    """Return what is another as soon as a row of the day is added, changed or removed: ids and their versions."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*), sum(hashtextextended(id::text || xmin::text, 0)::numeric) FROM {partitions.name_of(day)}"  # noqa: S608 - the name is made from a date
        )
        return tuple(cursor.fetchone())


def _pages(day: date) -> Iterator[list[tuple[Any, ...]]]:
    """Yield a day's rows by column, in order; nothing is held open between two pages."""
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
