"""Metrics of provider bills: the age of each bill, failed readings, and the last compared day's difference by cause.

Set by the settler, which sets those of the reconciliation too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import structlog
from django.db import DatabaseError
from django.db.models import Sum
from django.utils import timezone
from prometheus_client import Gauge

from apps.kernel.money import ZERO
from apps.kernel.zero_series import ComingAndGoing
from apps.provider_bills import readings
from apps.provider_bills.models import BillComparison, BillDifference

log = structlog.get_logger(__name__)

# Days in which a difference above the threshold stays an alert.
ALERT_DAYS: Final = 7

BILL_AGE = Gauge(
    "gateway_bill_age_seconds",
    "Since the moment up to which a provider's bill is known",
    ["provider"],
    multiprocess_mode="livemostrecent",
)
BILL_PROBLEM = Gauge(
    "gateway_bill_problem",
    "Whether the last reading of a provider's bill failed: 1 or 0",
    ["provider"],
    multiprocess_mode="livemostrecent",
)
BILL_DIFFERENCE = Gauge(
    "gateway_bill_difference_usd",
    "The last compared day of a provider's bill less the request log, by cause",
    ["provider", "cause"],
    multiprocess_mode="livemostrecent",
)
BILL_DAYS_ABOVE = Gauge(
    "gateway_bill_days_above_threshold",
    "Days of the last seven whose bill differs from the log by more than BILL_ALERT_PERCENT",
    ["provider"],
    multiprocess_mode="livemostrecent",
)
# A provider whose bill has not been compared for a week has no days.
_DAYS_ABOVE: Final = ComingAndGoing(BILL_DAYS_ABOVE)


def update_metrics() -> None:
    """Set the metrics from the stored readings and comparisons."""
    try:
        _set_readings()
        _set_differences()
    except DatabaseError as error:
        log.warning("bills.not_shown", error=type(error).__name__)


def days_above() -> dict[str, int]:
    """Return how many of the last seven days differ by more than the threshold, of each provider that was compared.

    Raises DatabaseError.
    """
    since = timezone.now().date() - timedelta(days=ALERT_DAYS)
    found: dict[str, int] = {}
    for provider, is_above in BillComparison.objects.filter(day__gte=since).values_list("provider", "is_above"):
        found[provider] = found.get(provider, 0) + int(is_above)
    return found


def _set_readings() -> None:
    now, problems = timezone.now(), readings.current_problems()
    known = readings.known_until()
    for provider, until in known.items():
        BILL_AGE.labels(provider).set(max((now - until).total_seconds(), 0))
    for provider in known.keys() | problems.keys():
        BILL_PROBLEM.labels(provider).set(int(provider in problems))


def _set_differences() -> None:
    _DAYS_ABOVE.show({provider: [days] for provider, days in days_above().items()})
    last = BillComparison.objects.order_by("provider", "-day").distinct("provider")
    for one in last:
        sums = dict(one.differences.values_list("cause").annotate(total=Sum("difference")))
        for cause in BillDifference.Cause.values:
            BILL_DIFFERENCE.labels(one.provider, cause).set(float(sums.get(cause) or ZERO))
