"""Partitioning of `request_log`: one partition for each UTC day, created ahead, dropped as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta

import structlog
from django.db import OperationalError, ProgrammingError, connection, connections, transaction
from psycopg.errors import LockNotAvailable, UndefinedTable

from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction
from apps.kernel.postgres.replica import PRIMARY

log = structlog.get_logger(__name__)

# Days that are created ahead, and how long a drop may block readers and writers.
DAYS_AHEAD = 7
_DROP_PATIENCE = "3s"
_PREFIX = "request_log_"

_EXISTING = """
    SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = 'request_log'::regclass
"""
# No query compares these; statistics on them take most of the CPU time of an ANALYZE, which runs each time that a
# partition has grown by a tenth, beside the requests.
_NO_STATISTICS = """
    SELECT string_agg(format('ALTER COLUMN %I SET STATISTICS 0', attname), ', ') FROM pg_attribute
    WHERE attrelid = 'request_log'::regclass AND attnum > 0 AND NOT attisdropped
        AND atttypid = ANY('{jsonb,text,numeric,bigint,double precision}'::regtype[])
        AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND attnum = ANY(indkey))
"""


def name_of(day: date) -> str:
    """Return the name of a day's partition."""
    return f"{_PREFIX}{day:%Y%m%d}"


def upcoming(now: datetime) -> list[date]:
    """Return the days that need a partition now: from yesterday, for late rows, to a week ahead."""
    today = now.astimezone(UTC).date()
    return [today + timedelta(days=offset) for offset in range(-1, DAYS_AHEAD + 1)]


def existing(using: str = PRIMARY) -> list[date]:
    """Return the days that have a partition, oldest first."""
    with connections[using].cursor() as cursor:
        cursor.execute(_EXISTING)
        return sorted(day_of(name) for (name,) in cursor.fetchall())


def ensure(days: Iterable[date]) -> list[date]:
    """Create missing partitions; return their days. Safe to run concurrently.

    Readers and writers of other days do not wait: a partition is created as a separate table, then attached.
    """
    wanted = {name_of(day): day for day in days}
    if not (wanted and _missing(wanted)):
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        lock_in_transaction(AdvisoryLock.MAKE_PARTITIONS)
        missing = _missing(wanted)
        cursor.execute(_NO_STATISTICS)
        [(no_statistics,)] = cursor.fetchall()
        for name in missing:
            start = wanted[name]
            cursor.execute(f"CREATE TABLE {name} (LIKE request_log INCLUDING ALL)")
            cursor.execute(f"ALTER TABLE {name} {no_statistics}")
            cursor.execute(
                f"ALTER TABLE request_log ATTACH PARTITION {name} "
                f"FOR VALUES FROM ('{start} 00:00+00') TO ('{start + timedelta(days=1)} 00:00+00')"
            )
    return [wanted[name] for name in missing]


def drop_before(day: date) -> list[date]:
    """Drop the partitions of earlier days; return their days. Stops at the first that is in use."""
    dropped = []
    for old in (known for known in existing() if known < day):
        if not drop(old):
            break
        dropped.append(old)
    return dropped


def drop(day: date, may_go: Callable[[], bool] = lambda: True) -> bool:
    """Drop a day's partition if `may_go` agrees while the table is locked; return whether it is gone.

    A drop waits for readers; if they take too long, it is left to the next run.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{_DROP_PATIENCE}'")
            # In the lock order of readers and writers: the table, then the partition.
            cursor.execute("LOCK TABLE ONLY request_log IN ACCESS EXCLUSIVE MODE")
            if not may_go():
                return False
            cursor.execute(f"DROP TABLE IF EXISTS {name_of(day)}")
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        log.warning("partitions.in_use", partition=name_of(day))
        return False
    return True


@contextmanager
def unless_gone() -> Iterator[None]:
    """Run work on a day's partition; ignore that another process drops it meanwhile."""
    try:
        yield
    except ProgrammingError as error:
        if not isinstance(error.__cause__, UndefinedTable):
            raise


def _missing(names: Iterable[str]) -> list[str]:
    """Return the names without a partition, in order."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_EXISTING} AND child.relname = ANY(%s)", [list(names)])
        return sorted(set(names) - {name for (name,) in cursor.fetchall()})


def day_of(name: str) -> date:
    """Return the day of a partition's name."""
    return datetime.strptime(name, f"{_PREFIX}%Y%m%d").replace(tzinfo=UTC).date()
