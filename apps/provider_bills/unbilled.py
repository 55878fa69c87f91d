"""Unbilled use: requests that are settled, and that no reading of their provider's bill covers yet.

Sums are those of the operators' traffic, by hour; the part that was paid with credits is on the operator's bill.
"""
# alone: the clearing accounts of the gateway read it; it depends on readings and traffic alone

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from django.db.models import Min, Sum

from apps.kernel.money import ZERO
from apps.logs.models import TrafficSlot
from apps.provider_bills import readings
from apps.provider_bills.models import BillReading

# How long use may wait for a bill that is read by its API, and for one that a person imports every month. Hours of
# traffic are kept for 35 days.
API_BOUND: Final = timedelta(hours=36)
FILE_BOUND: Final = timedelta(days=33)
_FARTHEST: Final = timedelta(days=35)


class UnbilledUse(NamedTuple):
    """The use of a provider without its bill: amount in USD, requests, the oldest hour, and how old that may be."""

    provider: str
    amount: Decimal
    requests: int
    oldest_at: datetime | None
    bound: timedelta


def find_unbilled(now: datetime) -> list[UnbilledUse]:
    """Return the unbilled use of each provider whose bill is read or was imported. Raises DatabaseError."""
    known = readings.known_until()
    by_api = {api.provider for api in readings.apis_in_use()}
    first = dict(
        BillReading.objects.filter(provider__in=by_api).values_list("provider").annotate(first=Min("started_at"))
    )
    found = []
    for provider in sorted(known.keys() | first.keys()):
        # A bill that was never read: the first try would have covered the days before it.
        since = known.get(provider) or first[provider] - timedelta(days=readings.DAYS_READ)
        bound = API_BOUND if provider in by_api else FILE_BOUND
        found.append(_unbilled(provider, max(since, now - _FARTHEST), bound))
    return found


def _unbilled(provider: str, since: datetime, bound: timedelta) -> UnbilledUse:
    slots = TrafficSlot.objects.filter(
        minutes=60, aspect=TrafficSlot.Aspect.PROVIDER, name=provider, starts_at__gte=since, credits_cost__gt=0
    )
    sums = slots.aggregate(amount=Sum("credits_cost"), requests=Sum("requests"), oldest=Min("starts_at"))
    return UnbilledUse(provider, sums["amount"] or ZERO, int(sums["requests"] or 0), sums["oldest"], bound)
