"""Comparison of a provider's bill with the request log: each whole day whose bill is known, stored with its causes.

Requests that the gateway's own credentials paid are compared; those of customers' provider keys are on the customers'
bills. Answers from the cache reached no provider. A comparison is replaced by the next one of its day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from apps.kernel.ids import find_id
from apps.kernel.money import ZERO, storable
from apps.kernel.postgres.rows import write_array
from apps.provider_bills import readings
from apps.provider_bills.differences import FoundBillDifference, LoggedUse, Used, find_differences
from apps.provider_bills.models import BillComparison, BillDifference, BillReading
from apps.provider_bills.stated_lines import VALUES, StatedLine, add

log = structlog.get_logger(__name__)

# Differences of a day that are kept; all are counted.
MAX_KEPT: Final = 500
# USD; a smaller difference of a day is never above the threshold.
MIN_ALERT: Final = Decimal(1)
_DAY: Final = timedelta(days=1)
# Providers' reports are late by minutes to hours: a day is compared once it has been over for so long.
_LAG: Final = timedelta(hours=3)
# The most days of one reading that are compared: a file may have a year.
_MAX_DAYS: Final = 62

_PAID: Final = """
    FROM request_log WHERE created_at >= %(start)s AND created_at < %(end)s AND used_provider = %(provider)s
        AND used_mode = 'credits' AND cached IS NOT TRUE
"""
_LIST_PRICE: Final = "coalesce(cost, 0) + coalesce(discount_savings, 0)"
# The search's part of the list price: the discount takes the same share of each part.
_SEARCHES: Final = f"CASE WHEN cost > 0 THEN coalesce(web_search_cost, 0) * ({_LIST_PRICE}) / cost ELSE 0 END"
_SUMS: Final = f"""
    count(*) FILTER (WHERE has_error IS NOT TRUE), sum(coalesce(prompt_tokens, 0)), sum(coalesce(cached_tokens, 0)),
    sum(coalesce(completion_tokens, 0)), sum({_LIST_PRICE} - {_SEARCHES})
"""
_BY_HOUR: Final = f"""
    SELECT date_trunc('hour', created_at, 'UTC'), underlying_model, {_SUMS}, sum({_SEARCHES}) {_PAID}
        AND NOT (request_id = ANY(%(names)s::text[]) OR id = ANY(%(ids)s::uuid[]))
    GROUP BY 1, 2
"""
_BY_REQUEST: Final = f"""
    SELECT CASE WHEN id = ANY(%(ids)s::uuid[]) THEN id::text ELSE request_id END, {_SUMS} {_PAID}
        AND (request_id = ANY(%(names)s::text[]) OR id = ANY(%(ids)s::uuid[]))
    GROUP BY 1
"""


def compare_due(read: Iterable[BillReading], now: datetime) -> list[BillComparison]:
    """Compare the whole days of readings that changed lines, or that were never compared. Raises DatabaseError."""
    made = []
    for reading in read:
        for day in _days_of(reading, now):
            known = BillComparison.objects.filter(provider=reading.provider, day=day)
            if reading.new_lines or not known.exists():
                made.append(compare_day(reading.provider, day))
    return made


def compare_day(provider: str, day: date) -> BillComparison:
    """Compare a day, and replace its comparison. Raises DatabaseError."""
    start = datetime.combine(day, clock(), UTC)
    lines = [_stated(one) for one in readings.lines_in_force(provider, start, start + _DAY)]
    logged = read_log(provider, start, [one.request_id for one in lines if one.request_id])
    found = find_differences(start, lines, logged)
    billed = _sum(one.cost for one in lines)
    paid = _sum([*(one.cost for one in logged.by_hour.values()), *(one.cost for one in logged.by_request.values())])
    listed = (paid or ZERO) + logged.searches
    difference = (_sum(one.cost for one in found) or ZERO) if billed is None else billed - listed
    comparison = _keep(provider, day, found, billed, listed, difference)
    log.info("bill.compared", provider=provider, day=str(day), differences=len(found), usd=str(difference))
    if comparison.is_above:
        log.error("bill.differs", provider=provider, day=str(day), usd=str(difference), causes=comparison.counts)
    return comparison


def threshold_of(listed: Decimal) -> Decimal:
    """Return the difference of a day in USD above which operators are alerted."""
    return max(MIN_ALERT, listed * settings.BILL_ALERT_PERCENT / 100)


def read_log(provider: str, start: datetime, request_ids: Sequence[str]) -> LoggedUse:
    """Return what the log says of a provider's day, with the named requests apart. Raises DatabaseError."""
    ids = [identifier for name in request_ids if (identifier := find_id(name)) is not None]
    values: dict[str, Any] = {
        "start": start,
        "end": start + _DAY,
        "provider": provider,
        "names": list(request_ids),
        "ids": write_array(ids) if ids else [],
    }
    by_hour: dict[tuple[str, datetime], Used] = {}
    searches = ZERO
    with connection.cursor() as cursor:
        cursor.execute(_BY_HOUR, values)
        for hour, model, *sums, searched in cursor.fetchall():
            by_hour[model, hour.astimezone(UTC)] = _used(sums)
            searches += searched
        by_request = {}
        if request_ids:
            cursor.execute(_BY_REQUEST, values)
            by_request = {name: _used(sums) for name, *sums in cursor.fetchall()}
    return LoggedUse(by_hour, by_request, searches)


def _used(sums: Sequence[Any]) -> Used:
    requests, prompt, cached, completion, cost = sums
    return Used(int(requests), int(prompt), int(cached), int(completion), Decimal(cost))


def _stated(line: Any) -> StatedLine:
    values = {name: getattr(line, name) for name in VALUES}
    return StatedLine(line.source, line.starts_at, line.ends_at, model=line.model, request_id=line.request_id, **values)


def _days_of(reading: BillReading, now: datetime) -> list[date]:
    """Return the whole days that a reading covers."""
    first, until = reading.covers_from, reading.covers_until
    if first is None or until is None:
        return []
    is_api = reading.origin == readings.API
    # A file ends with its last line, and its last day is whole once it is over.
    last = until if is_api else until.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
    last = min(last, now - _LAG)
    day = first.astimezone(UTC).date()
    days: list[date] = []
    while datetime.combine(day + _DAY, clock(), UTC) <= last and len(days) < _MAX_DAYS:
        days.append(day)
        day += _DAY
    return days


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    total: Decimal | None = None
    for one in amounts:
        total = add(total, one)
    return total


def _keep(
    provider: str,
    day: date,
    found: Sequence[FoundBillDifference],
    billed: Decimal | None,
    listed: Decimal,
    difference: Decimal,
) -> BillComparison:
    with transaction.atomic():
        comparison, _ = BillComparison.objects.update_or_create(
            provider=provider,
            day=day,
            defaults={
                "compared_at": timezone.now(),
                "billed_cost": None if billed is None else storable(billed),
                "logged_cost": storable(listed),
                "difference": storable(difference),
                "is_above": abs(difference) > threshold_of(listed),
                "counts": dict(Counter(str(one.cause) for one in found)),
            },
        )
        comparison.differences.all().delete()
        largest = sorted(found, key=lambda one: -abs(one.cost or ZERO))[:MAX_KEPT]
        BillDifference.objects.bulk_create(_row(comparison, one) for one in largest)
    return comparison


def _row(comparison: BillComparison, one: FoundBillDifference) -> BillDifference:
    return BillDifference(
        comparison=comparison,
        cause=one.cause,
        model=one.model,
        starts_at=one.starts_at,
        ends_at=one.ends_at,
        request_id=one.request_id,
        billed=one.billed.words[:200],
        logged=one.logged.words[:200],
        difference=None if one.cost is None else storable(one.cost),
    )
