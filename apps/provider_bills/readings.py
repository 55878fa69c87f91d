"""Readings of bills: ask each API whose key is set, and store the lines, each version once.

A line that a provider changes becomes another version; one that it withdraws becomes a version without usage and cost.
The provider is asked outside of transactions; storing is one transaction, and two readings at once wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from apps.kernel.postgres.advisory_lock import AdvisoryLock, lock_in_transaction
from apps.provider_bills.apis import APIS, BillApi, BillClient, BillUnavailable, Period
from apps.provider_bills.models import BillLine, BillReading
from apps.provider_bills.stated_lines import MAX_LINES, VALUES, InvalidBill, StatedLine, merge

log = structlog.get_logger(__name__)

API: Final = "api"
# Whole days before today that each reading reads again: providers correct their reports.
DAYS_READ: Final = 3
_MAX_PROBLEM: Final = 300
_STORED_TOGETHER: Final = 1_000

MakeClient = Callable[[BillApi, str], BillClient]


def key_of(api: BillApi) -> str:
    """Return the key that reads an API; empty while it is not set."""
    return str(getattr(settings, api.setting))


def apis_in_use() -> list[BillApi]:
    """Return the APIs whose keys are set; no other is called."""
    return [api for api in APIS if key_of(api)]


def make_client(api: BillApi, key: str) -> BillClient:
    """Return a client of the provider's own address."""
    return BillClient(api.base, api.headers(key))


def read_bills(now: datetime, client_of: MakeClient = make_client) -> list[BillReading]:
    """Read each bill whose key is set; return the readings, also those that failed. Raises DatabaseError."""
    return [_read(api, now, client_of(api, key_of(api))) for api in apis_in_use()]


def _read(api: BillApi, now: datetime, client: BillClient) -> BillReading:
    reading = BillReading.objects.create(provider=api.provider, origin=API)
    period = period_of(api, now)
    try:
        lines = _bounded(one for one in api.read(client, period) if one.ends_at <= period.ends_at)
    except (BillUnavailable, InvalidBill) as error:
        return _fail(reading, str(error))
    return store(reading, lines, period)


def period_of(api: BillApi, now: datetime) -> Period:
    """Return the period of a reading: from days ago to the begin of this hour, or of today for an API of days."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    today = hour.replace(hour=0)
    return Period(today - timedelta(days=DAYS_READ), today if api.is_daily else hour)


def _bounded(lines: Iterable[StatedLine]) -> list[StatedLine]:
    found = []
    for one in lines:
        found.append(one)
        if len(found) > MAX_LINES:
            raise InvalidBill(f"more than {MAX_LINES:,} lines")
    return found


def store(reading: BillReading, lines: Sequence[StatedLine], period: Period | None) -> BillReading:
    """Store the lines that are new or changed, and end the reading. Raises DatabaseError.

    With a period the bill is complete in it, and stored lines that it no longer has are withdrawn; an imported file
    has its own lines alone.
    """
    wanted = merge(list(lines))
    with transaction.atomic():
        lock_in_transaction(AdvisoryLock.STORE_PROVIDER_BILL)
        known = {_place(one): one for one in _known(reading.provider, wanted, period)}
        made = [
            _next_version(reading, one.place, dict(zip(VALUES, one.values, strict=True)), known.get(one.place))
            for one in wanted
            if one.place not in known or _values(known[one.place]) != one.values
        ]
        if period is not None:
            places = {one.place for one in wanted}
            withdrawn = [one for place, one in known.items() if place not in places and any(_values(one))]
            made += [_next_version(reading, _place(one), _withdrawn(one), one) for one in withdrawn]
        BillLine.objects.bulk_create(made, batch_size=_STORED_TOGETHER)
        reading.lines, reading.new_lines, reading.finished_at = len(wanted), len(made), timezone.now()
        covered = period or _span(wanted)
        if covered is not None:
            reading.covers_from, reading.covers_until = covered
        reading.save()
    log.info("bill.read", provider=reading.provider, lines=reading.lines, new=reading.new_lines)
    return reading


def lines_in_force(provider: str, first: datetime, until: datetime) -> QuerySet[BillLine]:
    """Return the newest version of each line that starts in a period."""
    found = BillLine.objects.filter(provider=provider, starts_at__gte=first, starts_at__lt=until)
    places = ("starts_at", "ends_at", "source", "model", "request_id")
    return found.order_by(*places, "-version").distinct(*places)


def _known(provider: str, wanted: Sequence[StatedLine], period: Period | None) -> list[BillLine]:
    """Return the lines in force that the reading may change."""
    covered = period or _span(wanted)
    if covered is None:
        return []
    is_file = period is None
    sources = Q(source=BillLine.Source.FILE) if is_file else ~Q(source=BillLine.Source.FILE)
    return list(lines_in_force(provider, *covered).filter(sources))


def _span(lines: Sequence[StatedLine]) -> Period | None:
    if not lines:
        return None
    return Period(min(one.starts_at for one in lines), max(one.ends_at for one in lines))


def _place(line: BillLine) -> tuple[Any, ...]:
    return (line.source, line.starts_at, line.ends_at, line.model, line.request_id)


def _values(line: BillLine) -> tuple[Any, ...]:
    return tuple(getattr(line, name) for name in VALUES)


def _withdrawn(line: BillLine) -> dict[str, Any]:
    """Return the values of a line without usage and cost: 0 where it stated something."""
    return {name: None if (value := getattr(line, name)) is None else type(value)(0) for name in VALUES}


def _next_version(
    reading: BillReading, place: tuple[Any, ...], values: dict[str, Any], before: BillLine | None
) -> BillLine:
    source, starts_at, ends_at, model, request_id = place
    return BillLine(
        reading=reading,
        provider=reading.provider,
        source=source,
        starts_at=starts_at,
        ends_at=ends_at,
        model=model,
        request_id=request_id,
        version=1 if before is None else before.version + 1,
        **values,
    )


def _fail(reading: BillReading, problem: str) -> BillReading:
    reading.problem, reading.finished_at = problem[:_MAX_PROBLEM], timezone.now()
    reading.save()
    log.error("bill.not_read", provider=reading.provider, problem=reading.problem)
    return reading


def current_problems() -> dict[str, str]:
    """Return why the last reading failed, of each provider where it did."""
    found = BillReading.objects.filter(finished_at__isnull=False).order_by("provider", "-finished_at")
    return {one.provider: one.problem for one in found.distinct("provider") if one.problem}


def known_until() -> dict[str, datetime]:
    """Return the moment up to which each provider's bill is known, of providers whose bill was read or imported."""
    found = BillReading.objects.filter(covers_until__isnull=False).values_list("provider")
    return dict(found.annotate(until=Max("covers_until")))
