"""Spending limits per period: the total usage that a key may reach until its current hour, day, week or month ends.

Usage only grows, so a limit for a period is a limit on total usage: the usage at the start of the period plus the
limit. Periods are calendar periods in UTC. Usage counts when it is settled, within seconds of its request.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import DecimalField, OuterRef, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from apps.billing.models import LedgerEntry
from apps.keys.models import ApiKey

# A key's usage at the start of a period never changes; number of such values cached by a process.
_MAX_REMEMBERED = 20_000
_beginnings: OrderedDict[tuple[UUID, datetime], Decimal] = OrderedDict()
_MONEY = DecimalField(max_digits=30, decimal_places=12)


@dataclass(frozen=True, slots=True)
class UsageCeiling:
    """The total usage (USD) that a key may reach until the period ends; `amount` is its limit for a `period`."""

    usage: Decimal
    ends_at: datetime
    amount: Decimal
    period: str


def find_usage_ceiling(key: ApiKey, organization_id: UUID, now: datetime) -> UsageCeiling | None:
    """Return the ceiling of a key's current period, None without such a limit. Raises DatabaseError."""
    if not key.period or key.period_limit is None:
        return None
    begins_at, ends_at = period_bounds(key.period, now)
    begun_with = _used_before(key.id, organization_id, begins_at)
    return UsageCeiling(begun_with + key.period_limit, ends_at, key.period_limit, key.period)


def period_bounds(period: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the first moment of a period and the first after it; weeks begin on Monday."""
    now = now.astimezone(UTC)
    if period == ApiKey.Period.HOUR:
        begins_at = now.replace(minute=0, second=0, microsecond=0)
        return begins_at, begins_at + timedelta(hours=1)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == ApiKey.Period.DAY:
        return today, today + timedelta(days=1)
    if period == ApiKey.Period.WEEK:
        monday = today - timedelta(days=today.weekday())
        return monday, monday + timedelta(days=7)
    first = today.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def clear_cache() -> None:
    """Clear the cache."""
    _beginnings.clear()


def _used_before(key_id: UUID, organization_id: UUID, moment: datetime) -> Decimal:
    """Return a key's usage at a moment: its current usage less later ledger entries. One query."""
    known = _beginnings.get((key_id, moment))
    if known is not None:
        return known
    since = (
        LedgerEntry.objects.filter(organization_id=organization_id, api_key_id=OuterRef("pk"), created_at__gte=moment)
        .order_by()
        .values("api_key_id")
        .annotate(total=Sum("usage"))
        .values("total")
    )
    row = ApiKey.objects.filter(pk=key_id).values_list(
        "usage", Coalesce(Subquery(since), Value(Decimal(0)), output_field=_MONEY)
    )
    usage, used_since = row.get()
    _beginnings[key_id, moment] = usage - used_since
    while len(_beginnings) > _MAX_REMEMBERED:
        _beginnings.popitem(last=False)
    found: Decimal = usage - used_since
    return found
