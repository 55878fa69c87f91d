"""Histogram of the log: how many requests and errors each equal part of a period has, for the rows that filters leave.

Counting is bounded by rows and by time, so that a page with a histogram opens quickly for any organization.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from apps.kernel.postgres.replica import PRIMARY
from apps.logs import archive
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import LogFilters
from apps.logs.search import rows_between

MAX_BARS: Final = 60
# Rows that are counted, newest first, and seconds that it may take.
MAX_ROWS: Final = 50_000
TIME_LIMIT: Final = 1.5
_DAY, _SMALLEST = timedelta(days=1), timedelta(microseconds=1)
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
    if not rows_between(scope, filters, low, high, using):
        return None
    ends_at, counts, left = clock.monotonic() + TIME_LIMIT, dict[datetime, tuple[int, int]](), MAX_ROWS + 1
    # The newest day first, then twice as many days each time: a limit alone has PostgreSQL find all rows of the period,
    # to sort them.
    span = _DAY
    while left > 0 and high >= low:
        begins = max(low, high - span)
        newer = _count_newest(rows_between(scope, filters, begins, high, using), left, step, origin, using, ends_at)
        if newer is None:
            return None
        for bar, (requests, errors) in newer.items():
            known = counts.get(bar, (0, 0))
            counts[bar] = known[0] + requests, known[1] + errors
            left -= requests
        high, span = begins - _SMALLEST, span * 2
    return counts


def _count_newest(
    walks: Sequence[QuerySet[RequestLog]], most: int, step: timedelta, origin: datetime, using: str, ends_at: float
) -> dict[datetime, tuple[int, int]] | None:
    """Return requests and errors of the newest rows by the start of their bar; None if that takes too long."""
    order, columns = ("-created_at", "-id"), ("created_at", "id", "has_error")
    found = [walk.order_by(*order).values_list(*columns)[:most] for walk in walks]
    rows = found[0] if len(found) == 1 else found[0].union(*found[1:], all=True).order_by(*order)[:most]
    text, values = rows.query.sql_with_params()
    milliseconds = round((ends_at - clock.monotonic()) * 1000)
    if milliseconds <= 0:
        return None
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")
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
