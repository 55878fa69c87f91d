"""Nightly reconciliation: check that requests, log, ledger and balances agree; keep and report every difference.

It reads both the log and the ledger, which do not know each other. A row and its charge are written in one transaction
and each check is one statement, so a settlement in progress is never half seen. It changes no row and no money.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from apps.billing import reconciliation
from apps.gateway.metrics import RECONCILED_AGO, RECONCILED_DIFFERENCES
from apps.gateway.models import Difference, Reconciliation
from apps.gateway.settlement import dead_letters, outbox
from apps.kernel.money import plain
from apps.logs import archive
from apps.organizations.plans import PLANS

log = structlog.get_logger(__name__)

# Differences of a kind that a run keeps; all of them are counted, up to the second number.
MAX_KEPT, MAX_COUNTED = 1_000, 100_000
# Seconds beyond the longest answer after which a request should be in the log.
PATIENCE = 3_600.0
# How far back a late record may reach, in days.
_FARTHEST = 400

_LATE_DAYS = """
    SELECT DISTINCT (to_timestamp(
        ('x' || left(replace(reference::text, '-', ''), 12))::bit(48)::bigint / 1000.0
    ) AT TIME ZONE 'UTC')::date
    FROM billing_ledgerentry WHERE kind IN ('usage', 'storage') AND id >= %s AND reference < %s AND reference >= %s
"""
_LOGGED = "FROM request_log WHERE created_at >= %(start)s AND created_at < %(end)s AND cost <> 0"
_PARTS = f"""
    SELECT 'parts', id, organization_id,
        coalesce(input_cost, 0) + coalesce(output_cost, 0) + coalesce(cached_input_cost, 0)
            + coalesce(cache_write_cost, 0) + coalesce(request_cost, 0) + coalesce(web_search_cost, 0)
            + coalesce(image_input_cost, 0) + coalesce(image_output_cost, 0) AS parts,
        cost
    {_LOGGED} AND cost <> coalesce(input_cost, 0) + coalesce(output_cost, 0) + coalesce(cached_input_cost, 0)
            + coalesce(cache_write_cost, 0) + coalesce(request_cost, 0) + coalesce(web_search_cost, 0)
            + coalesce(image_input_cost, 0) + coalesce(image_output_cost, 0)
    LIMIT {MAX_COUNTED}
"""


def _difference_query(kind: str, paid: str, credits: str, usage: str) -> str:
    """Return what asks for the differences between a day's rows and the ledger's entries of a kind for them.

    Both sides are found by the time inside their ids, so it does not matter when a record was settled. A row may be
    missing where its organization was deleted, or keeps its log for a shorter time.
    """
    return f"""
        SELECT
            CASE WHEN charged.reference IS NULL THEN 'not_charged'
                WHEN logged.id IS NULL THEN 'not_logged' ELSE 'amount' END,
            coalesce(logged.id, charged.reference),
            coalesce(logged.organization_id, charged.organization_id),
            logged.{paid},
            greatest(-charged.credits, charged.usage)
        FROM (
            SELECT id, organization_id, api_key_id, cost, data_storage_cost, used_mode FROM request_log
            WHERE created_at >= %(start)s AND created_at < %(end)s AND {paid} <> 0
        ) logged
        FULL JOIN (
            SELECT reference, organization_id, api_key_id, credits, usage FROM billing_ledgerentry
            WHERE kind = '{kind}' AND reference >= %(first)s AND reference < %(last)s
        ) charged ON charged.reference = logged.id
        LEFT JOIN organizations_organization organization ON organization.id = charged.organization_id
        LEFT JOIN logs_logretention kept ON kept.organization_id = charged.organization_id
        WHERE (charged.reference IS NULL)
            OR (logged.id IS NULL AND organization.status <> 'deleted' AND %(age)s < coalesce(kept.days, %(days)s))
            OR (logged.id IS NOT NULL AND (
                charged.usage <> {usage}
                OR charged.credits <> {credits}
                OR charged.organization_id <> logged.organization_id
                OR charged.api_key_id <> logged.api_key_id
            ))
        LIMIT {MAX_COUNTED}
    """  # noqa: S608 - made of constants


_DIFFERENCE_QUERIES = (
    _PARTS,
    _difference_query(
        "usage", "cost", "CASE WHEN logged.used_mode = 'credits' THEN -logged.cost ELSE 0 END", "logged.cost"
    ),
    _difference_query("storage", "data_storage_cost", "-logged.data_storage_cost", "0"),
)


class FoundDifference(NamedTuple):
    """A difference: its kind, what it is about, and the two sides of it."""

    kind: str
    subject: UUID | None
    organization: UUID | None
    expected: str
    found: str


def reconcile(now: datetime) -> Reconciliation:
    """Compare everything, keep what differs, and tell of it; return the run. Raises DatabaseError and RedisError.

    Yesterday (UTC) is compared, and every earlier day of which something was settled since yesterday began.
    """
    days = days_to_compare(now)
    run = Reconciliation.objects.create(days=[str(day) for day in days])
    counts: Counter[str] = Counter(dict.fromkeys(Difference.Kind.values, 0))
    for one in _all(days, now):
        counts[one.kind] += 1
        if counts[one.kind] <= MAX_KEPT:
            _keep(run, one)
    run.counts, run.compared, run.finished_at = dict(counts), sum(map(_rows_of, days)), timezone.now()
    run.save()
    log.info("reconciled", run=str(run.id), days=run.days, compared=run.compared, differences=run.found)
    return run


def days_to_compare(now: datetime) -> list[date]:
    """Return yesterday, and the earlier days of which something was settled since it began."""
    yesterday = now.astimezone(UTC).date() - timedelta(days=1)
    begun, farthest = _first_id(yesterday), _first_id(yesterday - timedelta(days=_FARTHEST))
    with connection.cursor() as cursor:
        cursor.execute(_LATE_DAYS, [begun, begun, farthest])
        days = {day for (day,) in cursor.fetchall()} | {yesterday}
    # A day that has moved to another store has only late rows left here.
    moved = archive.archived_before(now).date() if archive.find_archive() is not None else date.min
    return sorted(day for day in days if day >= moved)


def update_metrics() -> None:
    """Set the metrics to what the last finished run found, and its age in seconds."""
    try:
        last = Reconciliation.objects.filter(finished_at__isnull=False).order_by("-finished_at").first()
    except DatabaseError as error:
        log.warning("reconciliation.not_shown", error=type(error).__name__)
        return
    if last is None or last.finished_at is None:
        return
    RECONCILED_AGO.set(max((timezone.now() - last.finished_at).total_seconds(), 0))
    for kind in Difference.Kind.values:
        RECONCILED_DIFFERENCES.labels(kind).set(last.counts.get(kind, 0))


def _all(days: Iterable[date], now: datetime) -> Iterator[FoundDifference]:
    """Yield every difference there is."""
    for day in days:
        yield from _log_and_ledger(day, now)
    longest = settings.UPSTREAM_TOTAL_TIMEOUT + PATIENCE
    for one in (
        *reconciliation.compare_balances_with_ledger(),
        *reconciliation.find_unrecorded_requests(now - timedelta(seconds=longest)),
        *reconciliation.compare_holds(),
        *reconciliation.compare_copies(),
    ):
        yield FoundDifference(one.kind, one.subject, one.organization, one.expected, one.found)
    waiting, age = outbox.depth()
    if age > PATIENCE:
        yield FoundDifference("waiting", None, None, "0 records", f"{waiting} records, the oldest for {age:.0f} s")
    if broken := dead_letters.count():
        yield FoundDifference("unreadable", None, None, "0 records", f"{broken} records")


def _log_and_ledger(day: date, now: datetime) -> Iterator[FoundDifference]:
    """Yield the differences between a day's log rows and the ledger's entries for them."""
    start, end = _start_of(day), _start_of(day + timedelta(days=1))
    values: dict[str, Any] = {
        "start": start,
        "end": end,
        "first": _first_id(day),
        "last": _first_id(day + timedelta(days=1)),
        # In whole days, from the day's beginning; an hour more, for a retention that runs at this moment.
        "age": (now + timedelta(hours=1) - start) / timedelta(days=1),
        "days": min(limits.log_days for limits in PLANS.values()),
    }
    for question in _DIFFERENCE_QUERIES:
        with connection.cursor() as cursor:
            cursor.execute(question, values)
            for kind, subject, organization, expected, found in cursor.fetchall():
                yield FoundDifference(kind, subject, organization, _amount(expected), _amount(found))


def _rows_of(day: date) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) {_LOGGED}",
            {"start": _start_of(day), "end": _start_of(day + timedelta(days=1))},
        )
        return int(cursor.fetchone()[0])


def _keep(run: Reconciliation, one: FoundDifference) -> None:
    Difference.objects.create(
        reconciliation=run,
        kind=one.kind,
        subject_id=one.subject,
        organization_id=one.organization,
        expected=one.expected[:64],
        found=one.found[:64],
    )
    log.error("reconciliation.differs", **{name: str(value or "") for name, value in one._asdict().items()})


def _start_of(day: date) -> datetime:
    return datetime.combine(day, clock(), UTC)


def _first_id(day: date) -> UUID:
    """Return the lowest id that something made on a day can have."""
    return UUID(int=int(_start_of(day).timestamp() * 1000) << 80)


def _amount(value: Decimal | None) -> str:
    return "nothing" if value is None else plain(value)
