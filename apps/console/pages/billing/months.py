"""Months of statements: which there are, and which days each has. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from apps.kernel.errors import NotFound
from apps.logs.activity import ActivityWindow, kept_since
from apps.organizations.models import Organization

_MONTH = re.compile("[0-9]{4}-[0-9]{2}")


def months_of(organization: Organization, now: datetime) -> list[date]:
    """Return the first days of the months that there is a statement of, the latest first: since the organization was
    made, and as far back as the sums of days are kept whole."""
    begin = max(organization.created_at.astimezone(UTC).date(), _next(kept_since(now)))
    month = now.astimezone(UTC).date().replace(day=1)
    months = [month]
    while month > begin:
        month = (month - timedelta(days=1)).replace(day=1)
        if month >= begin.replace(day=1):
            months.append(month)
    return months


def read_month(text: str, organization: Organization, now: datetime) -> date:
    """Return the month that `YYYY-MM` stands for. Raises NotFound for one that there is no statement of."""
    if _MONTH.fullmatch(text):
        for month in months_of(organization, now):
            if f"{month:%Y-%m}" == text:
                return month
    raise NotFound("There is no statement of this month")


def days_of(month: date) -> ActivityWindow:
    """Return the days of a month."""
    return ActivityWindow(month, _next(month) - timedelta(days=1))


def _next(day: date) -> date:
    """Return the first day of the next month."""
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)
