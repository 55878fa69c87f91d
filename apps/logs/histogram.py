"""Histogram of the log: how many requests and errors each equal part of a period has, for the rows that filters leave.

Counting is bounded by rows and by time, so that a page with a histogram opens quickly for any organization.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import OperationalError, connections, transaction

from apps.kernel.postgres.replica import PRIMARY
from apps.logs import archive
from apps.logs.access import LogScope
from apps.logs.query import LogFilters
from apps.logs.search import rows_between

MAX_BARS: Final = 60
# Rows that are counted, newest first.
MAX_ROWS: Final = 100_000
_STATEMENT_LIMIT: Final = "'1500ms'"
_DAY: Final = timedelta(days=1)
# Lengths of a bar, except multiples of a day.
_STEPS: Final = tuple(timedelta(seconds=one) for one in (1, 5, 15, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200))


@dataclass(frozen=True, slots=True)
class Bar:
    """The requests from `start` until before `end`, and how many of them failed."""

    start: datetime
    end: datetime
    requests: int
    errors: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """The bars of a period without gaps, oldest first; `is_cut` if only the newest `MAX_ROWS` rows are counted."""

    bars: list[Bar]
    step: timedelta
    is_cut: bool


def find_histogram(
    scope: LogScope, filters: LogFilters, *, start: datetime, end: datetime, origin: datetime, using: str = PRIMARY
) -> Histogram | None:
    """Return the histogram of a period, whose bars begin at `origin` or whole steps away from it.

    None if the period has no past, begins in the archive, or takes too long to count.
    """
    now = datetime.now(UTC)
    low, high = max([start, *([min(scope.since.values())] if scope.since else [])]), min(end, now)
    is_archived = archive.find_archive() is not None and low < archive.archived_before(now)
    if not scope.since or low >= high or is_archived:
        return None
    step = step_of(high - low)
    first = origin + (low - origin) // step * step
    counts = _count(scope, filters, low, high, step, first, using)
    if counts is None:
        return None
    bars = []
    while first <= high:
        bars.append(Bar(first, first + step, *counts.get(first, (0, 0))))
        first += step
    return Histogram(bars, step, is_cut=sum(one.requests for one in bars) > MAX_ROWS)


def step_of(span: timedelta) -> timedelta:
    """Return the length of a bar with which a period has at most `MAX_BARS` bars, but for the parts at its ends."""
    for step in _STEPS:
        if span <= MAX_BARS * step:
            return step
    return -(-span // (MAX_BARS * _DAY)) * _DAY


def _count(
    scope: LogScope,
    filters: LogFilters,
    low: datetime,
    high: datetime,
    step: timedelta,
    origin: datetime,
    using: str,
) -> dict[datetime, tuple[int, int]] | None:
    """Return requests and errors by the start of their bar; None if that takes too long."""
    order, columns = ("-created_at", "-id"), ("created_at", "id", "has_error")
    walks = rows_between(scope, filters, low, high, using)
    if not walks:
        return None
    found = [walk.order_by(*order).values_list(*columns)[: MAX_ROWS + 1] for walk in walks]
    rows = found[0] if len(found) == 1 else found[0].union(*found[1:], all=True).order_by(*order)[: MAX_ROWS + 1]
    text, values = rows.query.sql_with_params()
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {_STATEMENT_LIMIT}")
            cursor.execute(
                f"""
                SELECT date_bin(make_interval(secs => %s), created_at, %s) AS bar, count(*),
                    count(*) FILTER (WHERE has_error)
                FROM ({text}) AS found (created_at, id, has_error) GROUP BY bar
                """,  # noqa: S608 - Django's own text
                (step.total_seconds(), origin, *values),
            )
            return {bar: (requests, errors) for bar, requests, errors in cursor.fetchall()}
    except OperationalError:
        return None
